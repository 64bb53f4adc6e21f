"""Cycle times of configurations nobody ran: a roofline for each phase, times what was measured over it.

The phases' log seconds are added up by their shares of the cycle (the delta method). Ignorance of the machine or the
model moves all phases alike, in part (``TOGETHER``), so it does not average out. The model is not trusted where the
order of its predictions, of each measured cycle from all others, has little to do with the order measured, or where
they are far outside their spreads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, Phase, Trial
from autotune.machine import data_sheets
from autotune.machine.data_sheets import Hardware
from autotune.proposals.forecasts import Column, EarlierTrials, Task, TimeForecast
from autotune.proposals.reading import Reader
from autotune.proposals.times.features import PHASES, Features, PhaseRows, features, read, tabled
from autotune.proposals.times.learning import (
    ENOUGH,
    LEVEL_SD,
    Measurements,
    PhasePosterior,
    doubted,
    learn,
    measurements,
    rows_of,
)
from autotune.proposals.times.observed import Measured, Starts, lengths_of, measured, starts_of
from autotune.proposals.times.roofline import Observed, Parts, Prior, World, computed, parts_of

LEAST_CONFIGURATIONS = 6
"""Fewer say nothing of the model."""
LEAST_RANK_CORRELATION = 0.3
"""Of left-out cycles with what was forecast of them."""
FAR_OUTSIDE = 2.5
"""Root mean square of left-out residuals, in spreads, from which these are fiction."""
TELLING = 0.06
"""Standard deviation of measured log seconds below which their order is noise."""
TOGETHER = 0.5
"""Correlation of what is not known of two phases' levels. What else is not known of phases does not go together."""


@dataclass(frozen=True)
class Account:
    """Trials under one prior."""

    found: Measured
    """Seconds where the prior has them."""
    learnt: Mapping[str, PhasePosterior]


def account(
    prior: Prior, world: World, table: Features, found: Measured, carried: Mapping[str, Measurements]
) -> Account:
    """Learns the posterior of each phase over the prior's seconds; ``carried`` is of earlier studies, by phase."""
    found, parts = _with_prior(prior, world, table, found)
    learnt = {
        phase: learn(
            phase, table.phases[phase], parts[phase], found, math.hypot(LEVEL_SD[phase], world.spread),
            carried.get(phase),
        )
        for phase in PHASES
    }  # fmt: skip
    return Account(found, learnt)


def left_out(ours: Account) -> tuple[Column, Column]:
    """Predicts log seconds of each measured cycle from all others, and their standard deviations."""
    found = ours.found
    total, moment = np.zeros(len(found.whole)), np.zeros(len(found.whole))
    for phase, known in ours.learnt.items():
        mean, variance = known.known.left_out()
        own = found.seconds[phase].copy()
        count = int(known.trials.sum())  # earlier studies' rows come after
        own[known.trials] = np.exp(np.clip(mean[:count], -50.0, 50.0))
        moment[known.trials] += np.square(own[known.trials]) * variance[:count]
        total += own
    return np.log(total), np.sqrt(np.maximum(moment / np.square(total), 1e-6))


def trustworthy(ours: Account) -> bool:
    """Tells whether the model predicts left-out trials; true while there are too few of them."""
    found = ours.found
    if found.different < LEAST_CONFIGURATIONS:
        return True
    logs = np.log(found.whole)
    expected, spread = left_out(ours)
    if math.sqrt(float(np.mean(np.square((logs - expected) / spread)))) > FAR_OUTSIDE:
        return False
    return float(np.std(logs)) < TELLING or rank_correlation(expected, logs) >= LEAST_RANK_CORRELATION


def rank_correlation(first: Column, second: Column) -> float:
    """Returns Spearman's coefficient, ties in the order given."""
    ranks = [np.argsort(np.argsort(column, kind="stable")) for column in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _with_prior(prior: Prior, world: World, table: Features, found: Measured) -> tuple[Measured, dict[str, Parts]]:
    """Returns the measurements by the phases that occur in the prior, and the prior's parts of each trial."""
    observed = Observed(found.computed, found.prompt)
    parts = {phase: prior(phase, _each(table.phases[phase]), world, observed) for phase in PHASES}
    seconds = {phase: np.broadcast_to(parts[phase].seconds({}), found.whole.shape) for phase in PHASES}
    return _placed(found, seconds), parts


def _each(rows: PhaseRows) -> PhaseRows:
    """A row for each configuration, equal ones too; a prior does not ask which are equal."""
    facts = {name: column[rows.index] for name, column in rows.facts.items()}
    return replace(rows, facts=facts, keys=rows.keys[rows.index])


def _placed(found: Measured, seconds: Mapping[str, Column]) -> Measured:
    """Seconds of a phase that by the prior does not occur count as idle, so that no time is lost."""
    idle = Phase.IDLE.value
    unforeseen = {phase: np.where(seconds[phase] > 0, 0.0, found.seconds[phase]) for phase in PHASES if phase != idle}
    kept = {phase: found.seconds[phase] - lost for phase, lost in unforeseen.items()}
    kept[idle] = found.seconds[idle] + np.sum(list(unforeseen.values()), axis=0)
    return replace(found, seconds={phase: kept[phase] for phase in PHASES})


def _padding(world: World, table: Features, found: Measured) -> float:
    """``World.padding`` by the median trial; rounded, so that it stays the same from trial to trial."""
    expected = world.iterations * computed(_each(table.phases[Phase.UPDATE.value]).facts, world, None)
    ratios = (found.computed / expected)[np.isfinite(found.computed)]
    return round(float(np.median(ratios)), 2) if len(ratios) else 1.0


def carried_over(
    task: Task, hardware: Hardware | None, earlier: Sequence[EarlierTrials], prior: Prior = parts_of
) -> dict[str, Measurements]:
    """Returns earlier studies' measurements beside their own prior, by phase. ``hardware``: the device of this study,
    also that of an earlier one on such a device without a probe of its own."""
    found: dict[str, Measurements] = {}
    for study, one in enumerate(earlier):
        observed = measured(sorted(one.trials, key=lambda t: t.number))
        device = _device(one, task, hardware)
        if not observed.trials or device.shared != (task.resources.device == "cpu"):
            continue
        world = World(one.task, device, lengths_of(one.task, observed))
        table = features(one.task, observed.configurations)
        observed, parts = _with_prior(prior, world, table, observed)
        for phase in PHASES:
            own, _, _ = measurements(phase, table.phases[phase], parts[phase], observed, study)
            own = doubted(own, one.distance)
            found[phase] = found[phase].joined(own) if phase in found else own
    return found


def _device(one: EarlierTrials, task: Task, hardware: Hardware | None) -> Hardware:
    own = data_sheets.probed(one.probe)
    if own is not None:
        return own
    here, there = task.resources, one.task.resources
    same = (here.device, here.cpu_cores, here.compute_capability, here.device_memory) == (
        there.device,
        there.cpu_cores,
        there.compute_capability,
        there.device_memory,
    )
    return hardware if hardware is not None and same else data_sheets.presumed(there)


@dataclass(frozen=True)
class PhaseTimes:
    """``forecasts.TimeModel``, frozen; ``fitted`` gives another. ``spread`` is of a configuration's own cycle; one
    trial scatters by ``noise`` more."""

    hardware: Hardware | None = None
    """``None``: what the task's machine mostly has, and wide."""
    prior: Prior = parts_of
    world: World | None = None
    learnt: Mapping[str, PhasePosterior] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    trusted: bool = True
    carried: Mapping[str, Measurements] = field(default_factory=dict)
    """By phase, what earlier studies measured (``carried_over``); left aside where trials speak against it."""
    noise: float = 0.0
    """Standard deviation of one trial's log cycle seconds around its configuration's."""
    seen: Reader[Features] = field(default_factory=lambda: Reader(read, tabled), compare=False, repr=False)
    """What was read of configurations, by this model or those it was fitted from."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> PhaseTimes:
        found = measured(sorted(trials, key=lambda t: (t.study_id, t.number)))
        world = World(task, self.hardware or data_sheets.presumed(task.resources), lengths_of(task, found))
        table = self.seen.table(task, found.configurations)
        world = replace(world, padding=_padding(world, table, found))
        carried = self.carried if self.carried and found.different < ENOUGH else {}
        ours = account(self.prior, world, table, found, carried)
        return replace(
            self,
            world=world,
            learnt=ours.learnt,
            starts=starts_of(found, table.starts),
            trusted=trustworthy(ours),
            noise=_noise(ours),
        )

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        table = self.seen.table(self.known.task, configurations)
        size = len(table.starts)
        seconds: dict[str, Column] = {}
        # Of a configuration: its seconds, the variance of each phase by itself, what phases have in common.
        sums = np.zeros((size, 3))
        for phase in PHASES:
            rows, known = table.phases[phase], self.learnt[phase].known
            parts, occurs = self._prior_of(phase, rows)
            mean, variance = known.at(rows_of(rows, parts))
            own = np.where(occurs, np.exp(mean), 0.0)
            # At a measured row the variance may be less than the level's.
            common = np.minimum(known.level_variance, variance)
            each = np.column_stack([own, own**2 * (variance - TOGETHER * common), own * np.sqrt(common)])
            sums += each.take(rows.index, axis=0) if len(own) > 1 else each
            seconds[phase] = own.take(rows.index)
        whole = sums[:, 0]
        spread = np.sqrt(sums[:, 1] + TOGETHER * np.square(sums[:, 2])) / whole
        restart = self.starts.seconds(self.known.task, table.kinds, whole)
        return TimeForecast(np.log(whole), spread, seconds, restart)

    def _prior_of(self, phase: str, rows: PhaseRows) -> tuple[Parts, Column]:
        """The prior's parts of ``rows``, and where it occurs; cached as long as the study's lengths stay the same."""
        world, found = rows.kept.get(self.prior, (None, None))
        if world != self.known:
            parts = self.prior(phase, rows, self.known, None)
            found = parts, np.broadcast_to(parts.seconds({}) > 0, rows.keys.shape)
            rows.kept[self.prior] = self.known, found
        answer: tuple[Parts, Column] = found
        return answer

    @property
    def known(self) -> World:
        """The task it is fitted for. Raises ``ValueError`` before ``fitted``."""
        if self.world is None:
            raise ValueError("a model that was fitted to nothing; fitted(task, ()) gives the prior")
        return self.world


def _noise(account: Account) -> float:
    found = account.found
    if not len(found.whole):
        return 0.0
    typical = {phase: float(np.mean(found.seconds[phase] / found.whole)) for phase in PHASES}
    return math.sqrt(sum(typical[phase] ** 2 * account.learnt[phase].process for phase in PHASES))
