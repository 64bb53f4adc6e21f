"""What a prior makes of measured trials, phase by phase: of a study's own, and of earlier ones it begins with. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.domain import Phase
from autotune.proposals.forecasts import Column, Earlier, Task
from autotune.proposals.times import machine, trust
from autotune.proposals.times.carried import Carried, row_variance
from autotune.proposals.times.features import PHASES, Features, PhaseRows, features
from autotune.proposals.times.learning import LEVEL_SD, Residuals, Told, learn, residuals, told_of
from autotune.proposals.times.machine import Hardware
from autotune.proposals.times.observed import Measured, lengths_of, measured
from autotune.proposals.times.roofline import flat
from autotune.proposals.times.world import Observed, Prior, World

FLAT_LEVEL_SD = 10.0
"""Of a level without a prior."""


def account(
    prior: Prior,
    world: World,
    table: Features,
    found: Measured,
    *,
    carried: Mapping[str, Carried] | None = None,
) -> trust.Account:
    """Each phase's learnt part.

    Args:
        prior: median seconds.
        world: of the study.
        table: of ``found.configurations``.
        found: what was measured.
        carried: by phase, what earlier studies measured.
    """
    found, seconds = foretold(prior, world, table, found)
    told = {phase: told_of(phase, table.phases[phase], seconds[phase], found) for phase in PHASES}
    learnt = {}
    for phase in PHASES:
        sd = FLAT_LEVEL_SD if prior is flat else math.hypot(LEVEL_SD[phase], world.spread)
        begun = (carried or {}).get(phase)
        learnt[phase] = learn(phase, told[phase], seconds[phase], found, sd, carried=begun)
    return trust.Account(found, learnt, seconds, told)


def without_prior(ours: trust.Account) -> trust.Account:
    """The same trials with no opinion but which phases occur, for a comparison; no knobs are looked at together."""
    seconds = {phase: np.where(column > 0, 1.0, 0.0) for phase, column in ours.foretold.items()}
    learnt = {
        phase: learn(phase, ours.told[phase], seconds[phase], ours.found, FLAT_LEVEL_SD, pairs=False)
        for phase in PHASES
    }
    return trust.Account(ours.found, learnt, seconds, ours.told)


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


@dataclass(frozen=True)
class _Rows:
    """Of one earlier study and phase."""

    told: Told
    seen: Residuals
    distance: float


def carried_over(prior: Prior, task: Task, hardware: Hardware | None, earlier: Sequence[Earlier]) -> dict[str, Carried]:
    """By phase, what earlier studies measured over the prior of their own task and device; empty where nothing was.

    Args:
        prior: as of the new study.
        task: the new study's.
        hardware: its device, if it is known; an earlier study on such a device without a probe of its own has it too.
        earlier: the studies.
    """
    found: dict[str, list[_Rows]] = {phase: [] for phase in PHASES}
    for one in earlier:
        told = measured(sorted(one.trials, key=lambda t: t.number))
        if not told.trials:
            continue
        world = World(one.task, _device(one, task, hardware), lengths_of(one.task, told))
        table = features(one.task, told.configurations)
        told, seconds = foretold(prior, world, table, told)
        for phase in PHASES:
            rows = told_of(phase, table.phases[phase], seconds[phase], told)
            found[phase].append(_Rows(rows, residuals(phase, rows, seconds[phase], told), one.distance))
    return {phase: _joined(studies) for phase, studies in found.items() if studies}


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


def _joined(studies: Sequence[_Rows]) -> Carried:
    names = studies[0].told.own
    return Carried(
        own={name: np.concatenate([s.told.own[name] for s in studies]) for name in names},
        values=np.concatenate([s.seen.values for s in studies]),
        noise=np.concatenate([s.seen.noise + row_variance(s.distance) for s in studies]),
        study=np.concatenate([np.full(len(s.seen.values), i, dtype=np.intp) for i, s in enumerate(studies)]),
        studies=len(studies),
    )
