"""Candidates near a configuration, for a space that is too large to list and therefore sampled. Pure."""

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
"""Most candidates that are listed; a space with as many was sampled."""
IN_ONE_PROCESS = 5_000
"""Most candidates that are listed for one process."""
REMEMBERED = 16
"""Number of cached neighbourhoods: a search asks about the same base again and again."""

Near = Callable[..., tuple[Configuration, ...]]
"""(configuration, same_learning=...) -> its neighbours."""


def neighbourhoods(space: SearchSpace, baseline: Configuration, resources: Resources) -> Near:
    """Returns a function that lists the legal configurations one knob away from another, in a deterministic order.

    A knob changes together with its dependents: the settings that only it enables, or else the rows that share its
    memory and the steps per generation, which are counted in micro-batches.
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
    """Lists the configurations that a process can run without a restart and that learn as the baseline does."""
    free = {name for name in space.values if RESTART.get(name) is Restart.NONE}

    @lru_cache(maxsize=REMEMBERED)
    def of(ran: Configuration) -> tuple[Configuration, ...]:
        about = space.about(ran, free)
        return about.candidates(baseline, resources, same_learning=True, limit=IN_ONE_PROCESS)

    return of
