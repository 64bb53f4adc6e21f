"""A runner on a fake clock, under ``ports.TrialRunner``, and the small landscape it runs on.

For the study loop's own tests only: what ends a study, what comes next, what is resumed. It starts no
process; how a real attempt is run, killed and swept is tested on real processes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autotune.domain import Budget, Configuration, CycleKind, FailureReason, Outcome, Phase, Pool, Protocol, Trial
from autotune.ports import Assignment, RunReport, StopToken, Store, Watcher
from autotune.proposals.proposer import make_proposer
from autotune.study.loop import StudyLoop
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop, SeenObserver
from trainer.child.contract import CurrentPhase, NoteRecord, Record, Result, WorstCaseRecord

START_UP_S = 10.0


def study_loop(store: Store, study_id: int, clock: FakeClock, budget: Budget, **given: Any) -> StudyLoop:
    """Returns the loop of a stored study; ``given`` has at least a runner or a crew."""
    study = store.study(study_id)
    spec = study.spec
    space = SearchSpace.from_json(spec.space)
    whole: dict[str, Any] = {
        "proposer": make_proposer(space, spec.baseline, spec.resources, spec.sampler, spec.seed),
        "observer": SeenObserver(),
        "stop": FakeStop(),
        "directory_of": lambda t: Path("runs") / str(t.number) / str(t.attempt),
    }
    return StudyLoop(study=study, budget=budget, store=store, clock=clock, **{**whole, **given})  # type: ignore[arg-type]


def cycle_seconds(configuration: Configuration) -> float:
    """Seconds of a recorded-length cycle: 8 rows, an optimum at micro-batch 4 without checkpointing."""
    micro = int(configuration["micro_batch_size"])
    generate = 4.0 + 0.5 * (8 / micro)
    update = 8.0 * (1.3 if configuration["gradient_checkpointing"] else 1.0) * (1.0 + 0.15 * abs(micro - 4))
    precision = 0.5 if configuration.get("precision") == "bf16" else 1.0
    return generate + update * precision


def host_bytes(configuration: Configuration) -> int:
    """Peak of the update: grows with the micro-batch, shrinks with checkpointing and bf16."""
    rows = int(configuration["micro_batch_size"]) * (0.25 if configuration["gradient_checkpointing"] else 1.0)
    precision = 0.6 if configuration.get("precision") == "bf16" else 1.0
    return int(f.GIB * (1.0 + rows * precision))


def natural_lengths(configuration: Configuration) -> tuple[int, ...]:
    """What completions come to where nothing forces them: longer at a higher temperature."""
    temperature = float(configuration.get("temperature", 1.0))
    return tuple(min(f.MAX_COMPLETION, round(temperature * length)) for length in f.LENGTHS)


class SimulatedRunner:
    """Runs assignments on ``clock``. ``tamper`` may replace a trial's outcome; ``compiles``: a compiler ran in it."""

    ends_early = True
    """Trials end when their watcher has had enough."""

    def __init__(
        self,
        clock: FakeClock,
        *,
        memory_limit: int | None = None,
        noise: float = 0.0,
        tamper: Callable[[Trial], Outcome | None] = lambda _: None,
        on_cycle: Callable[[Trial, int], None] = lambda *_: None,
        compiles: Callable[[Trial], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._limit = memory_limit
        self._noise = noise
        self._tamper = tamper
        self._on_cycle = on_cycle
        self._compiles = compiles
        self.ran: list[tuple[int, str, Configuration]] = []
        self.left: dict[Path, tuple[Record, ...]] = {}

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        trial = assignment.trial
        began = self._clock.monotonic()
        self.ran.append((trial.number, str(trial.kind), trial.configuration))
        self.left[assignment.directory] = ()
        outcome = self._attempt(assignment, watcher, stop, began)
        peak, compiled = host_bytes(trial.configuration), self._compiles(trial)
        return RunReport(outcome, self._clock.monotonic() - began, host_peak=peak, compiled=compiled)

    def _attempt(self, assignment: Assignment, watcher: Watcher, stop: StopToken, began: float) -> Outcome:
        trial = assignment.trial
        tampered = self._tamper(trial)
        self._clock.advance(START_UP_S)
        watcher.tick()
        if tampered is not None:
            return tampered
        if self._limit is not None and host_bytes(trial.configuration) > self._limit:
            return Outcome(FailureReason.OOM, Phase.UPDATE.value, Pool.HOST, "the process tree passed its limit")
        for index, (kind, seconds) in enumerate(self._plan(trial)):
            if stop.level >= 2:
                return Outcome(FailureReason.CANCELLED, message="stopped by the user")
            if self._clock.monotonic() + seconds - began > assignment.deadline_s:
                self._pass(max(0.0, began + assignment.deadline_s - self._clock.monotonic()))
                return Outcome(FailureReason.TIMEOUT, message="took too long")
            watcher.phase(CurrentPhase(Phase.GENERATE.value, index, kind.value))
            self._pass(seconds)
            for record in self._records(trial, index, kind, seconds):
                self.left[assignment.directory] += (record,)
                watcher.record(record)
            watcher.tick()
            self._on_cycle(trial, index)
            if kind is CycleKind.RECORDED and watcher.enough and self.ends_early:
                return Outcome()
        return Outcome()

    def _pass(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def _plan(self, trial: Trial) -> list[tuple[CycleKind, float]]:
        protocol: Protocol = trial.protocol
        base = cycle_seconds(trial.configuration)
        key = f"{trial.configuration.key}/{trial.number}/{trial.attempt}"
        rng = random.Random(hashlib.sha256(key.encode()).digest())
        kinds = [CycleKind.WARMUP] * protocol.warmup + [CycleKind.NATURAL] * protocol.natural
        kinds += [CycleKind.RECORDED] * protocol.recorded + [CycleKind.MAXIMUM] * protocol.maximum
        kinds += [CycleKind.DOUBLE] * protocol.double
        longer = {CycleKind.WARMUP: 2.0, CycleKind.MAXIMUM: 2.0, CycleKind.DOUBLE: 1.5}
        return [(k, base * longer.get(k, 1.0) * (1.0 + rng.gauss(0.0, self._noise))) for k in kinds]

    def _records(self, trial: Trial, index: int, kind: CycleKind, seconds: float) -> Sequence[Record]:
        natural = natural_lengths(trial.configuration)
        lengths = natural if kind is CycleKind.NATURAL else trial.protocol.lengths or natural
        found: list[Record] = [f.cycle(index, seconds=seconds, lengths=lengths, cycle_kind=kind)]
        if kind is CycleKind.WARMUP:
            found.append(WorstCaseRecord(2, f.MAX_PROMPT, f.MAX_COMPLETION, seconds))
        if kind is CycleKind.NATURAL and not trial.protocol.lengths:
            found.append(NoteRecord("lengths", {"lengths": list(natural)}))
        return found

    def close(self) -> tuple[int, ...]:
        return ()

    def sweep(self, study_id: int) -> tuple[int, ...]:
        return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        return self.left.get(directory, ()), None
