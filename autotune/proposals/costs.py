"""The process in which the next trial may continue, and the restart that each candidate needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.statistics.kept_process import RECENT, processes_go_on
from search_spaces.configuration import KnobValue, column
from search_spaces.knobs import RESTART, defaults
from search_spaces.knobs.model import Restart

Restarts = NDArray[np.int64]


class RestartTable:
    """Restarts of many candidates, by columns of the knobs that need one."""

    def __init__(self, candidates: Sequence[Configuration], framework: str) -> None:
        self._unset = defaults(framework)
        self._size = len(candidates)
        names = sorted({n for c in candidates for n in c if RESTART.get(n) is not Restart.NONE})
        self._columns: dict[str, tuple[dict[KnobValue | None, int], Restarts]] = {}
        for name in names:
            places: dict[KnobValue | None, int] = {}
            said = column(name, candidates, self._unset.get(name))
            self._columns[name] = places, np.array([places.setdefault(v, len(places)) for v in said], dtype=np.int64)

    def since(self, last: Configuration | None) -> Restarts:
        """Returns ``restart_between`` of each after ``last``; the whole process where there is none."""
        if last is None:
            return np.full(self._size, int(Restart.PROCESS), dtype=np.int64)
        found = np.zeros(self._size, dtype=np.int64)
        for name, (places, codes) in self._columns.items():
            differs = codes != places.get(last.get(name, self._unset.get(name)), -1)
            found = np.maximum(found, int(RESTART.get(name, Restart.PROCESS)) * differs)
        beyond = (n for n in last if n not in self._columns and last[n] != self._unset.get(n))
        return np.maximum(found, max((int(RESTART.get(n, Restart.PROCESS)) for n in beyond), default=0))


def living_process(
    trials: Sequence[Trial], framework: str, device: str, here: Sequence[Trial] | None = None
) -> Configuration | None:
    """Returns the configuration of the process that the next trial may use; ``None``: it needs a new one.

    On a CPU none goes on in the process of another (docs/decisions/0023-warm-workers.md). ``here`` are finished trials
    of the place it will run in; ``None``: all run in one place.
    """
    last = (trials if here is None else here)[-1:]
    if device == "cpu" or not last or not last[0].kind.is_searched or (last[0].state.is_finished and not last[0].fits):
        return None
    searched = [t for t in (trials if here is None else here) if t.kind.is_searched]
    recent = (*searched[:1], *searched[1:][-RECENT:])
    return last[0].configuration if processes_go_on(recent, framework) else None
