"""Finds the process that the next trial may continue in, and the restart that each candidate needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import ne

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals.reading import Columns
from autotune.statistics.kept_process import RECENT, processes_go_on
from search_spaces.knobs import RESTART, defaults
from search_spaces.knobs.model import Restart

Restarts = NDArray[np.int64]


def restarts(candidates: Columns, last: Configuration | None, framework: str) -> Restarts:
    """Returns ``restart_between`` ``last`` and each candidate; a whole new process if ``last`` is ``None``."""
    if last is None:
        return candidates.full(int(Restart.PROCESS)).astype(np.int64)
    found, unset = candidates.full(0.0), defaults(framework)
    for name in sorted(candidates.names.union(last)):
        level, own = int(RESTART.get(name, Restart.PROCESS)), last.get(name, unset.get(name))
        if level:
            found = np.maximum(found, level * candidates.each(name, partial(ne, own)))
    return found.astype(np.int64)


def living_process(
    trials: Sequence[Trial], framework: str, device: str, here: Sequence[Trial] | None = None
) -> Configuration | None:
    """Returns the configuration of the process that the next trial may use; ``None``: it needs a new one.

    On a CPU no trial continues in another's process (docs/decisions/0023-warm-workers.md). ``here`` are the finished
    trials of the place it will run in; ``None``: there is only one place.
    """
    last = (trials if here is None else here)[-1:]
    if device == "cpu" or not last or not last[0].kind.is_searched or (last[0].state.is_finished and not last[0].fits):
        return None
    searched = [t for t in (trials if here is None else here) if t.kind.is_searched]
    recent = (*searched[:1], *searched[1:][-RECENT:])
    return last[0].configuration if processes_go_on(recent, framework) else None
