"""Predicts cycle times of untried configurations: a roofline for each phase, times the measured deviation from it.

The phases' log seconds are summed by their shares of the cycle (the delta method). Uncertainty about the machine or the
model shifts all phases together, in part (``TOGETHER``), so it does not average out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.domain import Configuration, Trial
from autotune.machine import data_sheets
from autotune.machine.data_sheets import Hardware
from autotune.proposals.forecasts import Column, EarlierTrials, Task, TimeForecast
from autotune.proposals.times.features import PHASES, Table, features
from autotune.proposals.times.learning import ENOUGH, LEVEL_SD, Measurements, Posterior, joined, learn, measurements
from autotune.proposals.times.observed import Measured, lengths_of, measured
from autotune.proposals.times.roofline import Parts, World, parts_of, seconds_of

TOGETHER = 0.5
"""Correlation of the uncertainty of two phases' intercepts. Other uncertainty of phases is independent."""


def _read(world: World, table: Table, found: Measured) -> tuple[Measured, dict[str, Parts]]:
    """Returns the measurements by the phases that occur in the roofline, and the roofline's parts of each row."""
    parts = {phase: parts_of(phase, rows, world) for phase, rows in table.items()}
    occurs = {p: (seconds_of(parts[p], {}, rows.size) > 0)[rows.index] for p, rows in table.items()}
    return found.placed(occurs), parts


def carried_over(task: Task, hardware: Hardware | None, earlier: Sequence[EarlierTrials]) -> dict[str, Measurements]:
    """Returns measurements of earlier studies, relative to their own roofline, by phase. ``hardware``: the device of
    this study; also used for an earlier study on such a device without its own probe."""
    several: dict[str, list[Measurements]] = {phase: [] for phase in PHASES}
    for study, one in enumerate(earlier):
        found = measured(sorted(one.trials, key=lambda t: t.number))
        device = _device(one, task, hardware)
        if not found.configurations or device.shared != (task.resources.device == "cpu"):
            continue
        table = features(one.task, found.configurations)
        found, parts = _read(World(one.task, device, lengths_of(one.task, found)), table, found)
        for phase, rows in table.items():
            several[phase].append(measurements(phase, rows, parts[phase], found, study, one.distance))
    return {phase: joined(each) for phase, each in several.items() if each}


def _device(one: EarlierTrials, task: Task, hardware: Hardware | None) -> Hardware:
    own = data_sheets.probed(one.probe)
    if own is not None:
        return own
    names = ("device", "cpu_cores", "compute_capability", "device_memory")
    same = all(getattr(task.resources, name) == getattr(one.task.resources, name) for name in names)
    return hardware if hardware is not None and same else data_sheets.presumed(one.task.resources)


@dataclass(frozen=True)
class PhaseTimes:
    """The phase-time model, immutable; ``fitted`` returns another. ``spread`` is that of a single cycle time."""

    hardware: Hardware | None = None
    """Device of the study; ``None``: typical hardware of the task's machine, with a wide spread."""
    world: World | None = None
    learnt: Mapping[str, Posterior] = field(default_factory=dict)
    carried: Mapping[str, Measurements] = field(default_factory=dict)
    """Measurements of earlier studies by phase (``carried_over``); ignored where trials contradict them."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> PhaseTimes:
        found = measured(sorted(trials, key=lambda t: (t.study_id, t.number)))
        world = World(task, self.hardware or data_sheets.presumed(task.resources), lengths_of(task, found))
        table = features(task, found.configurations)
        found, parts = _read(world, table, found)
        carried = self.carried if len(found.configurations) < ENOUGH else {}
        learnt = {
            phase: learn(
                measurements(phase, rows, parts[phase], found),
                math.hypot(LEVEL_SD[phase], world.spread),
                carried.get(phase),
            )
            for phase, rows in table.items()
        }
        return replace(self, world=world, learnt=learnt)

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        table = features(self.known.task, tuple(configurations))
        seconds: dict[str, Column] = {}
        # Of a configuration: its seconds, the variance of each phase by itself, what phases have in common.
        sums = np.zeros((len(configurations), 3))
        for phase, rows in table.items():
            if rows.kept is None or rows.kept[0] != self.known:
                parts = parts_of(phase, rows, self.known)
                rows.kept = self.known, parts, seconds_of(parts, {}, rows.size) > 0
            known, (_, parts, occurs) = self.learnt[phase], rows.kept
            mean, variance = known.at(rows.own, parts, rows.size)
            own = np.where(occurs, np.exp(mean), 0.0)
            common = np.minimum(known.level_sd**2 * known.covariance[0, 0], variance)
            each = np.column_stack([own, own**2 * (variance - TOGETHER * common), own * np.sqrt(common)])
            sums += each.take(rows.index, axis=0)
            seconds[phase] = own.take(rows.index)
        whole = sums[:, 0]
        spread = np.sqrt(sums[:, 1] + TOGETHER * np.square(sums[:, 2])) / whole
        return TimeForecast(np.log(whole), spread, seconds)

    @property
    def known(self) -> World:
        """Roofline inputs of the fitted model. Raises ``ValueError`` before ``fitted``."""
        if self.world is None:
            raise ValueError("a model that was fitted to nothing; fitted(task, ()) gives the prior")
        return self.world
