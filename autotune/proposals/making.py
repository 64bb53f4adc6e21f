"""The proposer of a study, made of its space, its baseline and its sampler."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, Resources
from autotune.ports import Proposer
from autotune.proposals.forecasts import Background, Task
from autotune.proposals.local_search import LISTED, Nearby
from autotune.proposals.openings import COMPETENT, ROOMY, openings, strong_defaults, without_memory_savers
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers import named_sampler
from search_spaces.knobs.restart import RESTART, Restart
from search_spaces.space import SearchSpace
from search_spaces.unset import UNSET

IN_ONE_PROCESS = 5_000
"""Candidates added at most that need no other process than the competent one."""


def make_proposer(
    space: SearchSpace,
    baseline: Configuration,
    resources: Resources,
    sampler: str,
    seed: int,
    task: Task | None = None,
    background: Background | None = None,
) -> Proposer:
    """The proposer of a study. ``task`` is what samplers that forecast ask their models about, ``background`` what
    these know before the first trial.

    Raises:
        UsageError: no sampler of that name.
    """
    headline = space.candidates(baseline, resources, same_learning=True, limit=LISTED)
    permitted = space.candidates(baseline, resources, same_learning=False, limit=LISTED)
    whole = space.complete(baseline, resources)
    nearby = Nearby(space, baseline, resources) if len(permitted) >= LISTED else None
    firsts, otherwise = _firsts(headline, whole, nearby)
    if nearby is not None and resources.device == "cuda":
        opened = next((c for c, source in firsts if source == COMPETENT), whole)
        headline = tuple(dict.fromkeys((*headline, *in_one_process(space, opened, baseline, resources))))
    return TwoTrackProposer(
        headline=headline,
        permitted=permitted,
        searched=space.values,
        baseline=baseline,
        complete_baseline=whole,
        sampler=named_sampler(sampler).bind(task, background),
        seed=seed,
        one_memory=resources.device == "cpu",
        firsts=firsts,
        otherwise=otherwise,
        unset=[n for n, found in space.values_in(resources).items() if UNSET in found or n not in whole],
        nearby=nearby,
        framework=resources.framework,
    )


def in_one_process(
    space: SearchSpace, opened: Configuration, baseline: Configuration, resources: Resources
) -> tuple[Configuration, ...]:
    """What a process that ran ``opened`` can run as it is, with the baseline's learning.

    Of a drawn space hardly two candidates have the same engine: without these nearly every trial would start one.
    """
    free = {name for name in space.values if RESTART.get(name) is Restart.NONE}
    about = space.about(opened, free)
    return about.candidates(baseline, resources, same_learning=True, limit=IN_ONE_PROCESS)


def _firsts(
    headline: Sequence[Configuration], whole: Configuration, nearby: Nearby | None
) -> tuple[tuple[tuple[Configuration, str], ...], Configuration | None]:
    """(What is tried before anything else, what stands for the roomy one of them), the neighbours seen too."""
    if nearby is None:
        return openings(headline, whole), without_memory_savers(headline, whole)
    about = nearby.of(whole, same_learning=True)
    known = strong_defaults(about, whole)
    ample = without_memory_savers(nearby.of(known, same_learning=True) if known else about, known or whole)
    named = ((known, COMPETENT), (ample, ROOMY))
    return tuple((c, source) for c, source in named if c is not None), without_memory_savers(about, whole)
