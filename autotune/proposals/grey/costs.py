"""Expected seconds of a candidate's trial: the start if one is needed, warm-up, cycles.

Pure, and read off the history: which process is there to go on with, and whether processes go on at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals.grey.surfaces import Array
from autotune.statistics.kept_process import RECENT, processes_go_on, start_s
from search_spaces.configuration import KnobValue
from search_spaces.knobs.restart import RESTART, Restart, restart_between

CYCLES = 3
"""Timed cycles of a trial while none shows how many it has."""


@dataclass(frozen=True)
class TrialCosts:
    """What a trial of the study costs beside its cycles, and which process the next one may continue in."""

    last: Configuration | None
    """What the process holds that the next trial may go on with; ``None``: it needs a new one."""
    start_s: float
    """Longest start seen, without the first batch."""
    warm_up: float
    """Cycles before the timed ones."""
    timed: float
    """Timed cycles."""
    framework: str = "trl"

    def restarts(self, asked: Sequence[Configuration]) -> NDArray[np.int64]:
        """``Restart`` of each; the whole process where none is there."""
        last = self.last
        if last is None:
            return np.full(len(asked), int(Restart.PROCESS), dtype=np.int64)
        names = sorted({name for c in (last, *asked) for name in c if RESTART.get(name) is not Restart.NONE})
        found: dict[tuple[KnobValue | None, ...], int] = {}
        costs = []
        for configuration in asked:
            # Candidates are many, and differ in few of the knobs a restart is needed for.
            key = tuple([configuration.get(name) for name in names])
            if key not in found:
                found[key] = int(restart_between(last, configuration, self.framework))
            costs.append(found[key])
        return np.array(costs, dtype=np.int64)

    def seconds(self, cycle_s: Array, restarts: NDArray[np.int64], restart_s: Array | None = None) -> Array:
        """Of a trial of each candidate.

        Args:
            cycle_s: seconds of one cycle.
            restarts: as of ``restarts``.
            restart_s: seconds from the start of a fresh process to its first timed cycle, if they are known.
        """
        warm = self.warm_up * cycle_s
        fresh = self.start_s + warm if restart_s is None else np.maximum(restart_s, warm)
        found: Array = np.where(restarts > int(Restart.NONE), fresh, warm) + self.timed * cycle_s
        return found


def trial_costs(
    trials: Sequence[Trial], framework: str = "trl", device: str = "", here: Sequence[Trial] | None = None
) -> TrialCosts:
    """The costs of the next trial, by the search trials before it, in the order of their numbers.

    On a CPU none goes on in the process of another (docs/decisions/0023-warm-workers.md).

    Args:
        here: finished trials of the place it will run in; ``None``: all run in one place.
    """
    trials = (*trials[:1], *trials[1:][-RECENT:])
    before = trials if here is None else tuple(here[-RECENT:])
    newest = before[-1] if before else None
    goes_on = newest is not None and (not newest.state.is_finished or newest.fits)
    goes_on = goes_on and device != "cpu" and processes_go_on(before, framework)
    goes_on = goes_on and (here is None or before[-1].kind.is_searched)
    protocol = trials[-1].protocol if trials else None
    timed = CYCLES if protocol is None else (protocol.looks[0] if protocol.looks else protocol.recorded)
    return TrialCosts(
        last=newest.configuration if newest is not None and goes_on else None,
        start_s=max((start_s(t) for t in trials), default=0.0),
        warm_up=1.0 if protocol is None else float(protocol.warmup + protocol.natural),
        timed=float(max(1, timed)),
        framework=framework,
    )
