"""What a prior makes of measured trials, phase by phase: of a study's own, and of earlier ones it begins with. Pure.

A prior is trusted unless the residuals speak against it. Each measured configuration's cycle is predicted from all
others, once with the prior and once with a constant in its place (the same knobs, a level of any height). The prior is
not trusted when its summed logarithmic score is clearly the lower one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.domain import Phase
from autotune.proposals.forecasts import Column, Earlier, Task
from autotune.proposals.times import machine
from autotune.proposals.times.features import PHASES, Features, PhaseRows, features
from autotune.proposals.times.learning import (
    LEVEL_SD,
    PhasePosterior,
    Rows,
    learn,
    measured_rows,
    residuals,
    row_variance,
)
from autotune.proposals.times.machine import Hardware
from autotune.proposals.times.observed import Measured, lengths_of, measured
from autotune.proposals.times.roofline import flat
from autotune.proposals.times.world import Observed, Prior, World

FLAT_LEVEL_SD = 10.0
"""Of a level without a prior."""
LEAST_CONFIGURATIONS = 4
"""Fewer say nothing of either."""
MARGIN = 2.0
"""The score by which having no prior has to be ahead (natural logarithm: seven to one)."""


@dataclass(frozen=True)
class Account:
    """What a prior made of the trials."""

    found: Measured
    """Seconds where the prior has them."""
    learnt: Mapping[str, PhasePosterior]
    foretold: Mapping[str, Column]
    """Prior seconds of each trial, by ``Phase`` value."""


def prior_holds(ours: Account) -> bool:
    """Whether our prior may be trusted: it does no worse than none on the same trials, or there are too few of them."""
    if ours.found.different < LEAST_CONFIGURATIONS:
        return True
    return score(ours) >= score(without_prior(ours)) - MARGIN


def score(account: Account) -> float:
    """Log probability of the measured cycles, each foretold without its own rows; each configuration counts once."""
    found = account.found
    moment = np.zeros(len(found.whole))
    seconds: dict[str, Column] = {}
    for phase, known in account.learnt.items():
        rows = known.told.of_trials
        occurs = rows >= 0
        seconds[phase] = np.where(occurs, 0.0, found.seconds[phase])
        if not np.any(occurs):
            continue
        mean, variance = known.known.left_out()
        place = rows[occurs]
        seconds[phase][occurs] = account.foretold[phase][occurs] * np.exp(np.clip(mean[place], -50.0, 50.0))
        moment[occurs] += np.square(seconds[phase][occurs]) * variance[place]
    total = np.sum(list(seconds.values()), axis=0)
    variance_of_log = np.maximum(moment / np.square(total), 1e-6)
    away = np.log(found.whole / total)
    each = -0.5 * (np.square(away) / variance_of_log + np.log(2.0 * math.pi * variance_of_log))
    return float(np.sum(each * found.shares))


def account(
    prior: Prior, world: World, table: Features, found: Measured, carried: Mapping[str, Rows] | None = None
) -> Account:
    """Each phase's learnt part.

    Args:
        prior: median seconds.
        table: of ``found.configurations``.
        carried: by phase, what earlier studies measured.
    """
    found, seconds = foretold(prior, world, table, found)
    learnt = {}
    for phase in PHASES:
        sd = FLAT_LEVEL_SD if prior is flat else math.hypot(LEVEL_SD[phase], world.spread)
        told = measured_rows(phase, table.phases[phase], seconds[phase], found)
        learnt[phase] = learn(phase, told, seconds[phase], found, sd, (carried or {}).get(phase))
    return Account(found, learnt, seconds)


def without_prior(ours: Account) -> Account:
    """The same trials with no opinion but which phases occur, for a comparison."""
    seconds = {phase: np.where(column > 0, 1.0, 0.0) for phase, column in ours.foretold.items()}
    learnt = {
        phase: learn(phase, ours.learnt[phase].told, seconds[phase], ours.found, FLAT_LEVEL_SD) for phase in PHASES
    }
    return Account(ours.found, learnt, seconds)


def foretold(prior: Prior, world: World, table: Features, found: Measured) -> tuple[Measured, dict[str, Column]]:
    """What was measured, by the phases the prior knows of, and the prior's seconds of each trial."""
    observed = Observed(found.computed, found.prompt)
    seconds = {phase: prior(phase, _each(table.phases[phase]), world, observed) for phase in PHASES}
    return _placed(found, seconds), seconds


def _each(rows: PhaseRows) -> PhaseRows:
    """One row for each configuration, equal ones too; a prior does not ask which are equal."""
    facts = {name: column[rows.index] for name, column in rows.facts.items()}
    return replace(rows, facts=facts, keys=(b"",) * len(rows.index))


def _placed(found: Measured, seconds: Mapping[str, Column]) -> Measured:
    """Seconds of a phase that by the prior does not occur count as idle, so that no time is lost."""
    idle = Phase.IDLE.value
    unforeseen = {phase: np.where(seconds[phase] > 0, 0.0, found.seconds[phase]) for phase in PHASES if phase != idle}
    kept = {phase: found.seconds[phase] - lost for phase, lost in unforeseen.items()}
    kept[idle] = found.seconds[idle] + np.sum(list(unforeseen.values()), axis=0)
    return replace(found, seconds={phase: kept[phase] for phase in PHASES})


def carried_over(prior: Prior, task: Task, hardware: Hardware | None, earlier: Sequence[Earlier]) -> dict[str, Rows]:
    """By phase, what earlier studies measured over the prior of their own task and device; empty where nothing was.

    Args:
        hardware: its device, if it is known; an earlier study on such a device without a probe of its own has it too.
    """
    found: dict[str, Rows] = {}
    for study, one in enumerate(earlier):
        told = measured(sorted(one.trials, key=lambda t: t.number))
        if not told.trials:
            continue
        world = World(one.task, _device(one, task, hardware), lengths_of(one.task, told))
        table = features(one.task, told.configurations)
        told, seconds = foretold(prior, world, table, told)
        for phase in PHASES:
            rows = measured_rows(phase, table.phases[phase], seconds[phase], told)
            own, _ = residuals(phase, rows, seconds[phase], told, study)
            own = replace(own, noise=own.noise + row_variance(one.distance))
            found[phase] = found[phase].joined(own) if phase in found else own
    return found


def _device(one: Earlier, task: Task, hardware: Hardware | None) -> Hardware:
    own = machine.probed(one.probe)
    if own is not None:
        return own
    here, there = task.resources, one.task.resources
    same = (here.device, here.cpu_cores, here.compute_capability, here.device_memory) == (
        there.device,
        there.cpu_cores,
        there.compute_capability,
        there.device_memory,
    )
    return hardware if hardware is not None and same else machine.presumed(there)
