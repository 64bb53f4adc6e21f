"""Runs trials on a clock that only the runner moves: no process starts and nobody waits (``ports.TrialRunner``,
``ports.Clock``).

What the trial's process would decide is decided by the child's own code: which cycle comes next, and whether the first
one still was a warm-up. Which process runs a trial is decided by the keeper's. Each process draws its pace and its luck
with memory, each cycle its own pace (``machine.Noise``).
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autotune.domain import Configuration, CycleKind, CycleRecord, FailureReason, Outcome, Trial, TrialKind
from autotune.ports import Assignment, Clock, RunReport, StopToken, TrialRunner, Watcher
from autotune.running.warm_pool import WorkerKey, doubt_used_process, shares_process, suits
from benchmarks.decisions.machine import IDLE, SYNC, Machine
from trainer.child.contract import NoteRecord, Record, Result, StartupPart, StartupRecord, WorstCaseRecord
from trainer.child.cycles import CyclePlan, Settling

OOM_SHARE = 0.7
"""Of the warm-up cycle's seconds, those until memory runs out in it."""


class SimulatedClock:
    """``ports.Clock``; stands still until it is moved."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._began, self._seconds = now, 0.0

    def monotonic(self) -> float:
        return self._seconds

    def now(self) -> float:
        return self._began + self._seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """``seconds`` pass."""
        self._seconds += seconds


class Movable(Clock, Protocol):
    """A clock that stands still until it is moved."""

    def advance(self, seconds: float) -> None:
        """``seconds`` pass."""
        ...


class LaneClock:
    """``ports.Clock`` of one of several runners: when it is moved, the others have their turn until that moment.

    One thread runs at a time, the one whose moment comes first, so that the same studies always run the same.
    """

    def __init__(self, clock: Movable) -> None:
        self.clock = clock
        self.until = 0.0
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def now(self) -> float:
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """On the runner's thread: ``seconds`` pass."""
        self.until = self.clock.monotonic() + seconds
        self.back.release()
        self.turn.acquire()


@dataclass
class _Run:
    """An attempt in a place."""

    thread: threading.Thread
    report: RunReport | None = None
    error: BaseException | None = None


class SimulatedCrew:
    """``ports.Crew`` of simulated runners on one simulated clock.

    Args:
        runners: for each place the clock that its runner moves, and the runner.
        clock: the study's, which the others follow.
        stop: the user's.
        nodes: of each place; left out, there is one machine.
    """

    def __init__(
        self,
        runners: Sequence[tuple[LaneClock, TrialRunner]],
        clock: Movable,
        stop: StopToken,
        nodes: Sequence[str] = (),
    ) -> None:
        self._nodes = tuple(nodes) or ("",) * len(runners)
        self._lanes, self._runners = [lane for lane, _ in runners], [runner for _, runner in runners]
        self._clock, self._stop = clock, stop
        self._runs: dict[int, _Run] = {}

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(f"GPU {place}" for place in range(len(self._runners)))

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._nodes

    @property
    def running(self) -> int:
        """Attempts that run now."""
        return len(self._runs)

    def start(self, place: int, assignment: Assignment, watcher: Watcher) -> None:
        lane = self._lanes[place]
        lane.until = self._clock.monotonic()

        def work() -> None:
            lane.turn.acquire()
            try:
                run.report = self._runners[place].run(assignment, watcher, self._stop)
            except BaseException as error:
                run.error = error
            lane.back.release()

        run = self._runs[place] = _Run(threading.Thread(target=work, daemon=True))
        run.thread.start()

    def wait(self, timeout_s: float) -> tuple[tuple[int, RunReport], ...]:
        end = self._clock.monotonic() + timeout_s
        while True:
            place = min(self._runs, key=lambda p: (self._lanes[p].until, p))
            lane, run = self._lanes[place], self._runs[place]
            if lane.until > end:
                self._clock.advance(end - self._clock.monotonic())
                return ()
            self._clock.advance(max(0.0, lane.until - self._clock.monotonic()))
            lane.turn.release()
            lane.back.acquire()
            if run.error is not None:
                raise run.error
            if run.report is not None:
                del self._runs[place]
                return ((place, run.report),)

    def close(self) -> tuple[int, ...]:
        return ()

    def sweep(self, study_id: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:  # noqa: ARG002
        return (), None


@dataclass
class Process:
    """One that runs trials."""

    wanted: WorkerKey | None
    luck: float
    """Factor of all its cycles' seconds."""
    draw: float
    """Its luck with memory, from 0 to 1, the more the worse."""
    served: int = 0


@dataclass
class SimulatedRunner:
    """One trial at a time, as ``LocalRunner`` with a keeper would run it.

    Args:
        machine: what everything costs.
        clock: is moved by it.
        seed: of the noise; with the number of the trial it gives the same draws whatever ran before.
        lengths: recorded completion lengths, in tokens.
        prompt_tokens: of a cycle.
        longest: tokens of the longest completion allowed.
    """

    machine: Machine
    clock: SimulatedClock | LaneClock
    seed: int
    lengths: tuple[int, ...]
    prompt_tokens: int
    longest: int
    lost_s: float = 0.0
    """Seconds that trials which ran out of memory took, and their repeats."""
    restarts: Counter[str] = field(default_factory=Counter)
    """Starts of a process, and trials in a living one (``kept``)."""
    engines: Counter[str] = field(default_factory=Counter)
    """Starts by engine; runners of one machine share it, as they share what compilers keep."""
    pace: Callable[[], float] = lambda: 1.0
    """Times its seconds that a cycle takes now, for what runs beside it."""
    _process: Process | None = None

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:  # noqa: ARG002
        trial = assignment.trial
        if trial.kind is TrialKind.SEARCH:
            self.clock.advance(self.machine.between_s(trial.number))
        began = self.clock.monotonic()
        process = self._process_for(trial, _chance(self._key(trial, "process")))
        kept = process.served > 0
        self.restarts["kept" if kept else "started"] += 1
        outcome = _Attempt(self, trial, process, watcher, assignment.deadline_s).run(kept=kept)
        process.served += 1
        discarded = (
            process.wanted is not None and outcome.ok and not self.machine.keeps(trial.configuration, process.served)
        )
        if outcome.ok:
            self.clock.advance(self.machine.end_s(trial.configuration, kept=kept, discarded=discarded))
        if process.wanted is None or discarded or not outcome.ok:
            self._process = None
        seconds = self.clock.monotonic() - began
        if outcome.reason is FailureReason.OOM:
            self.lost_s += seconds
        counted = doubt_used_process(outcome, process.served - 1)
        return RunReport(counted, seconds, host_peak=None)

    def _key(self, trial: Trial, what: str) -> str:
        return hashlib.sha256(f"{self.seed}/{trial.number}/{trial.attempt}/{what}".encode()).hexdigest()

    def _process_for(self, trial: Trial, chance: random.Random) -> Process:
        wanted = None
        if shares_process(trial):
            wanted = WorkerKey("one study", trial.configuration, fresh=trial.kind is TrialKind.BASELINE)
        last = self._process
        if last is not None and last.wanted is not None and wanted is not None and suits(last.wanted, wanted):
            last.wanted = wanted
            return last
        self._process = Process(wanted, math.exp(chance.gauss(0.0, self.machine.noise.process)), chance.random())
        return self._process

    def engines_before(self, configuration: Configuration) -> int:
        """Starts of such an engine so far, this one not among them."""
        engine = f"{configuration.get('rollout_engine')}/{configuration.get('enforce_eager')}"
        self.engines[engine] += 1
        return self.engines[engine] - 1

    def noise(self, trial: Trial) -> random.Random:
        """Of the trial's cycles."""
        return _chance(self._key(trial, "cycles"))

    def close(self) -> tuple[int, ...]:
        self._process = None
        return ()

    def sweep(self, study_id: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:  # noqa: ARG002
        return (), None


class _OutOfTimeError(Exception):
    """The attempt's deadline has come."""


@dataclass
class _Attempt:
    """One attempt, second by second."""

    runner: SimulatedRunner
    trial: Trial
    process: Process
    watcher: Watcher
    deadline_s: float

    def run(self, *, kept: bool) -> Outcome:
        self._until = self.runner.clock.monotonic() + self.deadline_s
        try:
            return self._start(kept=kept) or self._cycles(kept=kept)
        except _OutOfTimeError:
            return Outcome(FailureReason.TIMEOUT, message="took too long")

    def _pass(self, seconds: float) -> None:
        clock = self.runner.clock
        if clock.monotonic() + seconds > self._until:
            clock.advance(max(0.0, self._until - clock.monotonic()))
            raise _OutOfTimeError
        clock.advance(seconds)
        self.watcher.tick()

    def _start(self, *, kept: bool) -> Outcome | None:
        machine, configuration = self.runner.machine, self.trial.configuration
        engines = 0 if kept else self.runner.engines_before(configuration)
        start = machine.start(configuration, engines, kept=kept)
        self._pass(start.unnamed)
        for part, seconds in start.parts.items():
            self._pass(seconds)
            self.watcher.record(StartupRecord(StartupPart(part), seconds))
        if start.crash:
            return Outcome(FailureReason.CRASH, StartupPart.ENGINE.value, message=start.crash)
        short = machine.ooms(configuration, self.process.draw)
        if short is None:
            return None
        phase, pool = short
        if phase not in (StartupPart.ENGINE.value, StartupPart.SERVER.value):
            warm_up = self._seconds(CycleKind.WARMUP, 0, kept=kept)
            self._pass(OOM_SHARE * sum(warm_up.values()))
        return Outcome(FailureReason.OOM, phase, pool, "out of memory")

    def _seconds(self, kind: CycleKind, place: int, *, kept: bool) -> Mapping[str, float]:
        machine = self.runner.machine
        factor = machine.factor(self.trial.configuration, kind, place, kept=kept) * self.process.luck
        factor *= self.runner.pace()
        return {name: factor * seconds for name, seconds in machine.phases(self.trial.configuration).items()}

    def _cycles(self, *, kept: bool) -> Outcome:
        plan = CyclePlan(self.trial.protocol)
        settling, chance = Settling(plan, lambda mine: mine), self.runner.noise(self.trial)
        for place, kind in enumerate(_kinds(plan)):
            noise, now = self.runner.machine.noise, self.runner.clock.monotonic()
            luck = math.exp(noise.of_cycle(chance) + noise.of_time(self.runner.seed, now))
            phases = {name: luck * seconds for name, seconds in self._seconds(kind, place, kept=kept).items()}
            self._pass(sum(phases.values()))
            accepted, noisy = plan.judge(kind, 0.0)
            record = self._record(place, kind, phases, accepted=accepted, noisy=noisy)
            for settled in settling.pass_on(record):
                self.watcher.record(settled)
            if kind is CycleKind.WARMUP:
                self.watcher.record(WorstCaseRecord(1, 0, self.runner.longest, record.seconds))
            if kind is CycleKind.NATURAL and not self.trial.protocol.lengths:
                self.watcher.record(NoteRecord("lengths", {"lengths": list(self.runner.lengths)}))
            if kind is CycleKind.RECORDED and self.trial.protocol.looks and self.watcher.enough:
                plan.ended = True
        for settled in settling.rest():
            self.watcher.record(settled)
        return Outcome()

    def _record(
        self, place: int, kind: CycleKind, phases: Mapping[str, float], *, accepted: bool, noisy: bool
    ) -> CycleRecord:
        runner, seconds = self.runner, sum(phases.values())
        longest = kind in (CycleKind.WARMUP, CycleKind.MAXIMUM)
        lengths = tuple(runner.longest for _ in runner.lengths) if longest else runner.lengths
        peaks = runner.machine.peaks(self.trial.configuration, self.process.draw)
        rows = len(lengths)
        return CycleRecord(
            index=place, cycle_kind=kind, seconds=seconds,
            phases={name: value for name, value in phases.items() if value or name in (SYNC, IDLE)},
            completion_tokens=sum(lengths), prompt_tokens=runner.prompt_tokens, rows=rows, updates=1,
            computed_tokens=runner.prompt_tokens + sum(lengths), lengths=lengths, peaks=peaks, cpu_seconds=seconds,
            drift=0.0, outside_cpu=0.0, accepted=accepted, noisy=noisy, groups=16, reward_mean=0.15,
            started=runner.clock.now() - seconds,
        )  # fmt: skip


def _chance(key: str) -> random.Random:
    return random.Random(key)  # noqa: S311 - a repeatable draw is the point


def _kinds(plan: CyclePlan) -> Iterator[CycleKind]:
    while (kind := plan.next()) is not None:
        yield kind
