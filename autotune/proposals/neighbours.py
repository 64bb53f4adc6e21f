"""Candidates beside a configuration, where a space is too large to list and candidates are drawn by chance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from autotune.domain import Configuration, Resources
from autotune.proposals.dominance import STEPS
from autotune.proposals.steps import ROWS
from search_spaces.knobs import KNOBS, RESTART
from search_spaces.knobs.model import Restart
from search_spaces.space import SearchSpace

LISTED = 16_000
"""Candidates that are listed at most; a space with as many was drawn from."""
IN_ONE_PROCESS = 5_000
"""Candidates that one process can run, at most."""
REMEMBERED = 16
"""Neighbourhoods that are remembered: a search asks about the same base again and again."""

Near = Callable[..., tuple[Configuration, ...]]
"""(configuration, same_learning=...) -> its neighbours."""


def neighbourhoods(space: SearchSpace, baseline: Configuration, resources: Resources) -> Near:
    """Tells the legal configurations that differ from one in one knob, in an order that depends on the arguments alone.

    With a knob goes what follows from it: the settings only it brings into play, or else other rows, where it takes
    their memory, and the steps per generation, which are counted in micro-batches.
    """

    def along(name: str, base: Configuration, same_learning: bool) -> Sequence[Configuration]:
        followers = {n for n in space.values if n in KNOBS and name in KNOBS[n].needs}
        narrow = space.about(base, {name, *(followers or (ROWS, STEPS))})
        return narrow.candidates(baseline, resources, same_learning=same_learning, limit=LISTED)

    @lru_cache(maxsize=REMEMBERED)
    def of(base: Configuration, *, same_learning: bool) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(c for name in space.values for c in along(name, base, same_learning)))

    return of


def in_one_process(
    space: SearchSpace, baseline: Configuration, resources: Resources
) -> Callable[[Configuration], tuple[Configuration, ...]]:
    """Lists the configurations that a process can run without a restart, with the baseline's learning."""
    free = {name for name in space.values if RESTART.get(name) is Restart.NONE}

    @lru_cache(maxsize=REMEMBERED)
    def of(ran: Configuration) -> tuple[Configuration, ...]:
        about = space.about(ran, free)
        return about.candidates(baseline, resources, same_learning=True, limit=IN_ONE_PROCESS)

    return of
