"""Little studies as if measured: a baseline, a search, and rounds of the fastest beside the baseline until proven."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune import domain
from autotune.domain import Configuration, CycleKind, CycleRecord, Protocol, Trial, TrialKind
from benchmarks.intervals import product
from benchmarks.intervals.noises import Machine, Noise
from trainer.child.cycles import CyclePlan, Settling

SEARCHED = 6
"""Configurations beside the baseline. All are as fast, so the one that measures fastest does so by chance."""
CYCLE_S = {False: 5.4, True: 8.7}
"""Seconds of the baseline's cycle, by whether the device is a GPU: of TRL's own steps on recorded machines."""
START_S = 10.0
TOKENS = 234
CYCLE = CycleRecord(0, CycleKind.RECORDED, 1.0, {}, TOKENS, TOKENS, rows=8, updates=1, computed_tokens=2 * TOKENS)
TRIAL = Trial(
    study_id=0, number=0, kind=TrialKind.BASELINE, configuration=Configuration({}), protocol=Protocol(),
    rows_per_update=8, state=domain.TrialState.COMPLETE, outcome=domain.Outcome(), worst_case_passed=True,
)  # fmt: skip


@dataclass(frozen=True)
class Course:
    """One study, at its end."""

    trials: tuple[Trial, ...]
    statements: tuple[product.Statement | None, ...]
    """Before any round, and after each."""

    @property
    def cycles(self) -> list[CycleRecord]:
        return [cycle for trial in self.trials for cycle in trial.cycles]


class Study:
    """Runs trials on a machine, one after the other.

    Args:
        ratio: how many times as fast as the baseline every other configuration is.
    """

    def __init__(self, noise: Noise, ratio: float, draw: np.random.Generator) -> None:
        self._machine = Machine(noise, draw)
        self._seconds = (CYCLE_S[noise.on_gpu] / ratio, CYCLE_S[noise.on_gpu])
        self._peaks = {"cycle": domain.Peaks(device_used=1 if noise.on_gpu else None, host=1)}
        self.baseline, *self.others = (Configuration({"micro_batch_size": n + 1}) for n in range(SEARCHED + 1))
        self.trials: tuple[Trial, ...] = ()

    def measure(self, kind: TrialKind, which: Configuration, protocol: Protocol, pair: int | None = None) -> None:
        """Runs a trial to its end."""
        cycles = self._cycles(protocol, pair, baseline=which == self.baseline)
        about = {"number": len(self.trials), "kind": kind, "configuration": which, "protocol": protocol, "pair": pair}
        self.trials = (*self.trials, TRIAL.with_(**about, cycles=cycles))

    def _cycles(self, protocol: Protocol, pair: int | None, *, baseline: bool) -> tuple[CycleRecord, ...]:
        """Goes through the protocol as a child does: it repeats what the guard objects to, and a slow first cycle."""
        plan = CyclePlan(protocol)
        settling = Settling(plan, bool)
        self._machine.rest(START_S)
        self._machine.begin(baseline=baseline, pair=pair)
        records: list[CycleRecord] = []
        while (kind := plan.next()) is not None:
            recorded, timed = kind is CycleKind.RECORDED, kind is not CycleKind.WARMUP
            seconds, drift, outside = self._machine.cycle(self._seconds[baseline], recorded=recorded)
            cycle = replace(CYCLE, cycle_kind=kind, seconds=seconds, peaks=self._peaks)
            if timed:
                cycle = replace(cycle, drift=drift, outside_cpu=outside)
            accepted, noisy = plan.judge(kind, cycle.outside_cpu)
            records += settling.pass_on(replace(cycle, accepted=accepted, noisy=noisy))
        return tuple(replace(c, index=n) for n, c in enumerate((*records, *settling.rest())))


def run(noise: Noise, ratio: float, draw: np.random.Generator) -> Course:
    """Simulates a whole study."""
    study = Study(noise, ratio, draw)
    study.measure(TrialKind.BASELINE, study.baseline, product.BASELINE)
    for configuration in study.others:
        study.measure(TrialKind.SEARCH, configuration, product.searching(study.trials))
    answer = product.fastest(study.trials[1:])
    statements = [product.stated(study.trials, answer, study.baseline)]
    while len(statements) <= product.ROUNDS:
        coming = product.next_of_round(study.trials, answer, study.baseline)
        if coming is None or coming[0] == len(statements):  # the round before has ended
            statements.append(product.stated(study.trials, answer, study.baseline))
        if coming is None:
            break
        pair, configuration, protocol = coming
        study.measure(TrialKind.CONFIRM, configuration, protocol, pair)
    return Course(study.trials, tuple(statements))
