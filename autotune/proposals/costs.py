"""The process in which the next trial may continue, and what a candidate needs to be started anew. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.statistics.kept_process import RECENT, processes_go_on
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RESTART, restart_between

Restarts = NDArray[np.int64]


class RestartTable:
    """Restarts of many candidates: they differ in few of the knobs a restart is needed for."""

    def __init__(self, candidates: Sequence[Configuration]) -> None:
        names = sorted({n for c in candidates for n in c if RESTART.get(n) is not Restart.NONE})
        places: dict[tuple[KnobValue | None, ...], int] = {}
        self._each: list[Configuration] = []
        index = []
        for candidate in candidates:
            key = tuple([candidate.get(name) for name in names])
            if key not in places:
                places[key] = len(places)
                self._each.append(candidate)
            index.append(places[key])
        self._index = np.array(index, dtype=np.intp)

    def since(self, last: Configuration | None, framework: str) -> Restarts:
        """``Restart`` of each after ``last``; the whole process where there is none."""
        if last is None:
            return np.full(len(self._index), int(Restart.PROCESS), dtype=np.int64)
        few = [int(restart_between(last, each, framework)) for each in self._each]
        return np.array(few, dtype=np.int64)[self._index] if few else np.zeros(0, dtype=np.int64)


def living_process(
    trials: Sequence[Trial], framework: str, device: str, here: Sequence[Trial] | None = None
) -> Configuration | None:
    """What the process holds that the next trial may go on with; ``None``: it needs a new one.

    On a CPU none goes on in the process of another (docs/decisions/0023-warm-workers.md).

    Args:
        trials: of the study, of any kind, by number.
        here: finished trials of the place it will run in; ``None``: all run in one place.
    """
    last = (trials if here is None else here)[-1:]
    if device == "cpu" or not last or not last[0].kind.is_searched or (last[0].state.is_finished and not last[0].fits):
        return None
    searched = [t for t in (trials if here is None else here) if t.kind.is_searched]
    recent = (*searched[:1], *searched[1:][-RECENT:])
    return last[0].configuration if processes_go_on(recent, framework) else None
