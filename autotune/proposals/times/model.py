"""Cycle times of configurations nobody ran: a roofline for each phase, times what was measured over it.

The phases' log seconds are added up by their shares of the cycle (the delta method): a phase of two thirds of a cycle
that is known to 10 % makes the cycle known to 7 %. What is not known of the machine or the model moves all phases
alike, in part (``TOGETHER``), so it does not average out.

A prior is trusted unless the residuals speak against it. Each measured configuration's cycle is predicted from all
others, once with the prior and once with a constant in its place (the same knobs, a level of any height). The prior is
not trusted when its summed logarithmic score is clearly the lower one.
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
    ROW_SD,
    ROW_SD_OF_DOUBLING,
    PhasePosterior,
    Rows,
    learn,
    measured_rows,
    residuals,
)
from autotune.proposals.times.observed import Measured, Starts, lengths_of, measured, starts_of
from autotune.proposals.times.roofline import Observed, Prior, World, roofline

FLAT_LEVEL_SD = 10.0
"""Of a level without a prior."""
LEAST_CONFIGURATIONS = 4
"""Fewer say nothing of either."""
MARGIN = 2.0
"""The score by which having no prior has to be ahead (natural logarithm: seven to one)."""


@dataclass(frozen=True)
class Account:
    """Trials under one prior: measured, learnt and prior seconds."""

    found: Measured
    """Seconds where the prior has them."""
    learnt: Mapping[str, PhasePosterior]
    prior_seconds: Mapping[str, Column]
    """Prior seconds of each trial, by ``Phase`` value."""


def prior_holds(ours: Account) -> bool:
    """Whether our prior may be trusted: it does no worse than none on the same trials, or there are too few of them."""
    if ours.found.different < LEAST_CONFIGURATIONS:
        return True
    return score(ours) >= score(without_prior(ours)) - MARGIN


def score(account: Account) -> float:
    """Log probability of the measured cycles, each predicted without its own rows; each configuration counts once."""
    found = account.found
    moment = np.zeros(len(found.whole))
    seconds: dict[str, Column] = {}
    for phase, known in account.learnt.items():
        occurs, place = known.measured.trials, known.measured.places
        mean, variance = known.known.left_out()
        seconds[phase] = found.seconds[phase].copy()
        seconds[phase][occurs] = account.prior_seconds[phase][occurs] * np.exp(np.clip(mean[place], -50.0, 50.0))
        moment[occurs] += np.square(seconds[phase][occurs]) * variance[place]
    total = np.sum(list(seconds.values()), axis=0)
    variance_of_log = np.maximum(moment / np.square(total), 1e-6)
    away = np.log(found.whole / total)
    each = -0.5 * (np.square(away) / variance_of_log + np.log(2.0 * math.pi * variance_of_log))
    return float(np.sum(each * found.shares))


def account(prior: Prior, world: World, table: Features, found: Measured, carried: Mapping[str, Rows]) -> Account:
    """Posterior of each phase over the prior's seconds.

    Args:
        prior: median seconds.
        table: of ``found.configurations``.
        carried: by phase, what earlier studies measured.
    """
    found, seconds = with_prior_seconds(prior, world, table, found)
    learnt = {}
    for phase in PHASES:
        sd = math.hypot(LEVEL_SD[phase], world.spread)
        rows = measured_rows(phase, table.phases[phase], seconds[phase], found)
        learnt[phase] = learn(phase, rows, seconds[phase], found, sd, carried.get(phase))
    return Account(found, learnt, seconds)


def without_prior(ours: Account) -> Account:
    """The same trials under a prior that only knows which phases occur, for comparison."""
    seconds = {phase: np.where(column > 0, 1.0, 0.0) for phase, column in ours.prior_seconds.items()}
    learnt = {
        phase: learn(phase, ours.learnt[phase].measured, seconds[phase], ours.found, FLAT_LEVEL_SD) for phase in PHASES
    }
    return Account(ours.found, learnt, seconds)


def with_prior_seconds(
    prior: Prior, world: World, table: Features, found: Measured
) -> tuple[Measured, dict[str, Column]]:
    """The measurements by the phases that occur in the prior, and the prior's seconds of each trial."""
    observed = Observed(found.computed, found.prompt)
    seconds = {phase: prior(phase, _each(table.phases[phase]), world, observed) for phase in PHASES}
    return _placed(found, seconds), seconds


def _each(rows: PhaseRows) -> PhaseRows:
    """A row for each configuration, equal ones too; a prior does not ask which are equal."""
    facts = {name: column[rows.index] for name, column in rows.facts.items()}
    return replace(rows, facts=facts, keys=(b"",) * len(rows.index))


def _placed(found: Measured, seconds: Mapping[str, Column]) -> Measured:
    """Seconds of a phase that by the prior does not occur count as idle, so that no time is lost."""
    idle = Phase.IDLE.value
    unforeseen = {phase: np.where(seconds[phase] > 0, 0.0, found.seconds[phase]) for phase in PHASES if phase != idle}
    kept = {phase: found.seconds[phase] - lost for phase, lost in unforeseen.items()}
    kept[idle] = found.seconds[idle] + np.sum(list(unforeseen.values()), axis=0)
    return replace(found, seconds={phase: kept[phase] for phase in PHASES})


def carried_over(
    prior: Prior, task: Task, hardware: Hardware | None, earlier: Sequence[EarlierTrials]
) -> dict[str, Rows]:
    """By phase, ratios of what earlier studies measured to their own prior; empty where nothing was measured.

    Args:
        hardware: its device, if it is known; an earlier study on such a device without a probe of its own has it too.
    """
    found: dict[str, Rows] = {}
    for study, one in enumerate(earlier):
        observed = measured(sorted(one.trials, key=lambda t: t.number))
        if not observed.trials:
            continue
        world = World(one.task, _device(one, task, hardware), lengths_of(one.task, observed))
        table = features(one.task, observed.configurations)
        observed, seconds = with_prior_seconds(prior, world, table, observed)
        for phase in PHASES:
            rows = measured_rows(phase, table.phases[phase], seconds[phase], observed)
            own, _ = residuals(phase, rows, seconds[phase], observed, study)
            own = replace(own, noise=own.noise + (ROW_SD + ROW_SD_OF_DOUBLING * one.distance) ** 2)
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


TOGETHER = 0.5
"""Correlation of what is not known of two phases' levels. What else is not known of phases does not go together."""


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
    seen: Reader[Features] = field(default_factory=lambda: Reader(read, tabled), compare=False, repr=False)
    """What was read of configurations, by this model or those it was fitted from."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> PhaseTimes:
        found = measured(sorted(trials, key=lambda t: (t.study_id, t.number)))
        world = World(task, self.hardware or data_sheets.presumed(task.resources), lengths_of(task, found))
        table = self.seen.table(task, found.configurations)
        carried = self.carried if self.carried and found.different < ENOUGH else {}
        ours = account(self.prior, world, table, found, carried)
        return replace(
            self,
            world=world,
            learnt=ours.learnt,
            starts=starts_of(found, table.starts),
            trusted=prior_holds(ours),
            noise=_noise(ours),
        )

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        table = self.seen.table(self.known.task, configurations)
        size = len(table.starts)
        seconds: dict[str, Column] = {}
        # Of a configuration: its seconds, the variance of each phase by itself, what phases have in common.
        sums = np.zeros((size, 3))
        for phase in PHASES:
            rows, known = table.phases[phase], self.learnt[phase]
            prior = self._prior_of(phase, rows)
            mean, variance = known.at(rows)
            own = np.where(prior > 0, prior * np.exp(mean), 0.0)
            # At a measured row the variance may be less than the level's.
            common = np.minimum(known.known.level_variance, variance)
            each = np.column_stack([own, own**2 * (variance - TOGETHER * common), own * np.sqrt(common)])
            sums += each.take(rows.index, axis=0) if len(own) > 1 else each
            seconds[phase] = own.take(rows.index)
        whole = sums[:, 0]
        spread = np.sqrt(sums[:, 1] + TOGETHER * np.square(sums[:, 2])) / whole
        restart = self.starts.seconds(self.known.task, table.kinds, whole)
        return TimeForecast(np.log(whole), spread, seconds, restart)

    def _prior_of(self, phase: str, rows: PhaseRows) -> Column:
        """The prior's seconds of ``rows``; cached as long as the study's lengths stay the same."""
        world, seconds = rows.kept.get(self.prior, (None, np.zeros(0)))
        if world != self.known:
            seconds = self.prior(phase, rows, self.known, None)
            rows.kept[self.prior] = self.known, seconds
        return seconds

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
