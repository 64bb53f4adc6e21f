"""Chooses a candidate: the highest expected improvement x probability of holding / expected seconds of its trial.

The seconds are those of a start if one is needed, warm-up and cycles, read off the history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import SURE
from autotune.proposals.grey.surfaces import Array
from autotune.statistics.distributions import normal_below
from autotune.statistics.kept_process import RECENT, processes_go_on, start_s
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RESTART, restart_between

LIKELY = 0.75
"""Least probability of holding of a candidate that is chosen, while any has it: a failed trial costs as much as
another, tells less, and may need a restart. A search with a memory model has its own limits (``likely_from``)."""
SEVERAL = 5
"""Measured trials from which a forecast of memory is trusted more, so that less room than ``SURE`` is enough."""
LESS_LIKELY = 0.6
"""What is enough from then on. The fastest that fits often lies right below the limit, where a forecast is never sure:
with 0.75 throughout, the three best rows of a recorded table stayed untried in most searches."""
MAX_OOMS, OOM_WINDOW = 2, 30
CAREFUL = 0.95
"""After ``MAX_OOMS`` of ``OOM_WINDOW`` trials ran out of memory, only candidates that hold with this probability are
chosen, while there are any."""
BARS = (CAREFUL, SURE, LIKELY, LESS_LIKELY)
"""Where nothing is likely enough, the next of these is asked for."""
TIE = 0.01
"""Scores this close, in logarithms, are equal; then the one that restarts less."""
LEAST_SPREAD = 0.005
"""No forecast of a logarithm of tokens/hour is surer than that."""
NEVER = -1e9
FAR = -20.0
"""Standard deviations from which the improvement is computed by its series."""


@dataclass(frozen=True)
class Outlook:
    """Predictions for each candidate: speed, memory, cost of its trial."""

    value: Array
    """Mean of the natural logarithm of tokens/hour."""
    spread: Array
    """Its standard deviation."""
    holds: Array
    """Probability that it fits and passes the guards."""
    seconds: Array
    """Of a trial of it."""
    restarts: NDArray[np.int64]
    """How much has to be started anew for it, ascending in cost."""


def log_improvement(value: Array, spread: Array, best: float) -> Array:
    """Logarithm of the expected improvement over ``best`` (Jones et al., Journal of Global Optimization 13, 1998).

    Far below the best the difference of two tails is taken from their series, so that order is kept there too.
    """
    spread = np.maximum(spread, LEAST_SPREAD)
    z = (value - best) / spread
    density = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)
    near = np.maximum(z, FAR)
    close = near * normal_below(near) + np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi)
    far = np.minimum(z, FAR) ** -2.0
    tail = density + np.log(far) + np.log1p(-3.0 * far + 15.0 * far * far)
    shape: Array = np.where(z < FAR, tail, np.log(np.maximum(close, 1e-300)))
    return np.log(spread) + shape


def score(outlook: Outlook, best: float) -> Array:
    """Logarithm of expected improvement x probability / seconds."""
    gain = log_improvement(outlook.value, outlook.spread, best)
    return gain + np.log(np.maximum(outlook.holds, 1e-12)) - np.log(np.maximum(outlook.seconds, 1e-9))


def likely_from(measured: int, ran_out: int = 0) -> float:
    """The probability of holding from which a candidate is likely enough, by a memory model.

    Args:
        ran_out: trials that ran out of memory.
    """
    if ran_out >= MAX_OOMS * max(1.0, (measured + ran_out) / OOM_WINDOW):
        return CAREFUL
    return SURE if measured < SEVERAL else LESS_LIKELY


def likely(holds: Array, least: float) -> NDArray[np.bool_]:
    """Candidates that hold with probability ``least``; if none does, with the next lower of ``BARS``; if none, all."""
    for bar in (least, *(b for b in BARS if b < least)):
        if (found := holds >= bar).any():
            return found
    return np.ones(len(holds), dtype=np.bool_)


def choice(outlook: Outlook, best: float, least: float = LIKELY) -> int:
    """The candidate's place among those of ``outlook``, of which there is at least one.

    Args:
        least: probability of holding below which nothing is chosen while anything is above; where nothing is, the next
            of ``BARS`` counts.
    """
    scores = np.where(likely(outlook.holds, least), score(outlook, best), NEVER)
    equal = np.flatnonzero(scores >= scores.max() - TIE)
    order = np.lexsort((equal, -scores[equal], outlook.restarts[equal]))
    return int(equal[order[0]])


CYCLES = 3
"""Timed cycles of a trial while none shows how many it has."""


@dataclass(frozen=True)
class TrialCosts:
    """Cost of a trial besides its cycles, and the process in which the next trial may continue."""

    last: Configuration | None
    """What the process holds that the next trial may go on with; ``None``: it needs a new one."""
    start_s: float
    """Longest start seen, without the first batch."""
    warm_up: float
    """Cycles before the timed ones."""
    timed: float
    """Timed cycles."""
    framework: str = "trl"

    def restarts(self, configurations: Sequence[Configuration]) -> NDArray[np.int64]:
        """``Restart`` of each; the whole process where none is there."""
        last = self.last
        if last is None:
            return np.full(len(configurations), int(Restart.PROCESS), dtype=np.int64)
        names = sorted({name for c in (last, *configurations) for name in c if RESTART.get(name) is not Restart.NONE})
        found: dict[tuple[KnobValue | None, ...], int] = {}
        costs = []
        for configuration in configurations:
            # Candidates are many, and differ in few of the knobs a restart is needed for.
            key = tuple([configuration.get(name) for name in names])
            if key not in found:
                found[key] = int(restart_between(last, configuration, self.framework))
            costs.append(found[key])
        return np.array(costs, dtype=np.int64)

    def seconds(self, cycle_s: Array, restarts: NDArray[np.int64], restart_s: Array | None = None) -> Array:
        """Expected seconds of a trial of each candidate.

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
