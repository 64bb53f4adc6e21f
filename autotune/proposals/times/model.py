"""Cycle times of configurations nobody ran: a roofline for each phase, times what was measured over it.

The phases' log seconds are added up by their shares of the cycle (the delta method): a phase of two thirds of a cycle
that is known to 10 % makes the cycle known to 7 %. What is not known of the machine or the model moves all phases
alike, in part (``TOGETHER``), so it does not average out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import Column, Task, TimeForecast
from autotune.proposals.times import machine
from autotune.proposals.times.accounts import Account, account, prior_holds
from autotune.proposals.times.features import PHASES, FeatureCache, Features, features
from autotune.proposals.times.learning import ENOUGH, PhasePosterior, Rows
from autotune.proposals.times.machine import Hardware
from autotune.proposals.times.observed import lengths_of, measured
from autotune.proposals.times.restart import Starts, starts_of
from autotune.proposals.times.roofline import flat, roofline
from autotune.proposals.times.world import Prior, World

MOST_KEPT = 2000
"""Configurations asked about at once, of which what was read is kept; of more only the table of candidates is."""
TOGETHER = 0.5
"""Correlation of what is not known of two phases' levels."""


@dataclass(frozen=True)
class PhaseTimes:
    """``forecasts.TimeModel``. The value is frozen; ``fitted`` gives another.

    ``spread`` of its forecasts is that of the configuration's own cycle; one trial of it scatters by ``noise`` more.
    """

    hardware: Hardware | None = None
    """``None``: what the task's machine mostly has, and wide."""
    prior: Prior = roofline
    world: World | None = None
    learnt: Mapping[str, PhasePosterior] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    trusted: bool = True
    carried: Mapping[str, Rows] = field(default_factory=dict)
    """By phase, what earlier studies measured (``carried_over``); left aside where trials speak against it."""
    noise: float = 0.0
    """Standard deviation of one trial's log cycle seconds around its configuration's."""
    seen: FeatureCache | None = field(default=None, compare=False, repr=False)
    """Configurations read before, by this model or another of the same task."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> PhaseTimes:
        found = measured(sorted(trials, key=lambda t: (t.study_id, t.number)))
        world = World(task, self.hardware or machine.presumed(task.resources), lengths_of(task, found))
        table = self._read(task, found.configurations)
        carried = self.carried if self.carried and found.different < ENOUGH else {}
        ours = account(self.prior, world, table, found, carried)
        trusted = self.prior is flat or prior_holds(ours)
        starts = starts_of(found, table.starts)
        noise = _noise(ours)
        return replace(self, world=world, learnt=ours.learnt, starts=starts, trusted=trusted, noise=noise)

    @property
    def begun(self) -> bool:
        """Earlier studies have a part in it."""
        return any(one.begun for one in self.learnt.values())

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        return self.forecast_of(self._read(self.known.task, configurations))

    def _read(self, task: Task, configurations: Sequence[Configuration]) -> Features:
        if self.seen is None or len(configurations) > MOST_KEPT:
            return features(task, configurations)
        return self.seen.features(task, configurations)

    def forecast_of(self, table: Features) -> TimeForecast:
        """The same of candidates whose columns were computed before, by ``features`` of the same task."""
        size = len(table.starts)
        seconds: dict[str, Column] = {}
        variance: dict[str, Column] = {}
        for phase in PHASES:
            rows = table.phases[phase]
            prior = self.prior(phase, rows, self.known, None)
            mean, spread = self.learnt[phase].at(rows)
            seconds[phase] = np.where(prior > 0, prior * np.exp(mean), 0.0)[rows.index]
            variance[phase] = spread[rows.index]
        whole = np.sum(list(seconds.values()), axis=0) if size else np.zeros(0)
        level = {phase: self.learnt[phase].known.level_variance for phase in PHASES}
        spread = _spread(seconds, variance, level, whole)
        restart = self.starts.seconds(self.known.task, table.starts, whole)
        return TimeForecast(np.log(whole), spread, seconds, restart)

    @property
    def known(self) -> World:
        """What it was fitted for. Raises ``ValueError`` before ``fitted``."""
        if self.world is None:
            raise ValueError("a model that was fitted to nothing; fitted(task, ()) gives the prior")
        return self.world


def _spread(
    seconds: Mapping[str, Column], variance: Mapping[str, Column], level: Mapping[str, float], whole: Column
) -> Column:
    """Standard deviation of the log of a sum, by the shares; levels go together, the rest does not."""
    total, together, alone = np.zeros_like(whole), np.zeros_like(whole), np.zeros_like(whole)
    for phase, column in seconds.items():
        share = column / whole
        total += np.square(share) * variance[phase]
        # At a measured row the variance may be less than the level's.
        common = np.minimum(level[phase], variance[phase])
        together += share * np.sqrt(common)
        alone += np.square(share) * common
    return np.sqrt(total + TOGETHER * np.maximum(np.square(together) - alone, 0.0))


def _noise(account: Account) -> float:
    found = account.found
    if not len(found.whole):
        return 0.0
    typical = {phase: float(np.mean(found.seconds[phase] / found.whole)) for phase in PHASES}
    return math.sqrt(sum(typical[phase] ** 2 * account.learnt[phase].process for phase in PHASES))


@dataclass(frozen=True)
class PredictedCycle:
    """Of one configuration before any trial; seconds of one steady cycle."""

    seconds: float
    low: float
    high: float
    """Between ``low`` and ``high`` with the probability asked for, by the model's own account."""
    phases: Mapping[str, float]
    tokens_per_hour: float
    """Completion tokens at the task's lengths."""
    restart_s: float


def predicted(
    task: Task, hardware: Hardware | None, configuration: Configuration, quantile: float = 1.645
) -> PredictedCycle:
    """From the roofline alone; the interval is ``quantile`` standard deviations of the log to either side (90 %)."""
    model = PhaseTimes(hardware).fitted(task, ())
    table = features(task, (configuration,))
    found = model.forecast_of(table)
    seconds, spread = float(np.exp(found.log_seconds[0])), float(found.spread[0])
    rows = float(table.phases["reward"].facts["rows"][0])
    lengths = model.known.lengths.completions
    tokens = rows * sum(lengths) / len(lengths)
    return PredictedCycle(
        seconds,
        seconds * math.exp(-quantile * spread),
        seconds * math.exp(quantile * spread),
        {phase: float(column[0]) for phase, column in found.phases.items()},
        3600.0 * tokens / seconds,
        float(found.restart_s[0]),
    )
