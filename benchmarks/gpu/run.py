"""A run in its folder: what it measures, what is finished, and the next trial of it.

Trials go through the same runner, rendering and protocol as a study's, so a row of the table is what a study
would have measured.
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from autotune import wiring
from autotune.domain import (
    Configuration,
    CycleRecord,
    FailureReason,
    Fingerprint,
    Outcome,
    Protocol,
    Study,
    StudySpec,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.machine.clock import SystemClock
from autotune.ports import Assignment, StopToken, TrialRunner
from autotune.running.local import home_tag, study_tag
from autotune.running.warm_pool import WarmWorkerPool, restores_memory
from autotune.settings import Settings, read_settings
from autotune.statistics import evidence
from autotune.statistics.lengths import NATURAL_CYCLES
from autotune.study import schedule
from benchmarks.gpu import design, journal
from benchmarks.gpu.architectures import Architecture
from benchmarks.gpu.slices import cut_short
from trainer.child.contract import CurrentPhase, NoteRecord, Record, StartupRecord, WorstCaseRecord

STUDY = 1
INFRA_ATTEMPTS = 2
KINDS = {
    "baseline": TrialKind.VERIFY,
    "competent": TrialKind.VERIFY,
    "design": TrialKind.SEARCH,
    "confirm": TrialKind.CONFIRM,
}


@dataclass(frozen=True)
class RunRequest:
    """What was asked for."""

    architecture: Architecture
    device: str
    python: str
    out: Path
    trials: int
    rows: int
    completion: int
    prompt: int
    rounds: int
    seed: int = 0
    allow_busy: bool = False
    cold: bool = False
    """A process for each trial, as ``autotune start --cold``."""
    alike: int = 1
    """Trials in a row that can share a process."""

    @property
    def space(self) -> str:
        return "single-gpu" if self.device == "cuda" else "cpu"

    @property
    def settings(self) -> Settings:
        return read_settings(environ={}, home=self.out / "home")

    @property
    def tag(self) -> str:
        """Of every process of this run that is no trial."""
        return f"{study_tag(home_tag(self.settings.home.root), STUDY)}bench"


@dataclass(frozen=True)
class Run:
    """A run that can go on."""

    wanted: RunRequest
    spec: StudySpec
    fingerprint: Fingerprint
    entries: tuple[design.Entry, ...]
    left_out: tuple[str, ...]
    spare: tuple[design.Entry, ...] = ()
    """Trials instead of those with vLLM, should it be refused."""

    @property
    def file(self) -> Path:
        """Finished trials, a line each."""
        return self.wanted.out / "trials.jsonl"

    def rows(self) -> list[journal.Row]:
        """Finished trials by number; of a number that is there twice, the first."""
        found: dict[int, journal.Row] = {}
        for row in journal.rows(self.file):
            found.setdefault(int(row["number"]), row)
        return [found[number] for number in sorted(found)]

    def trials(self) -> tuple[Trial, ...]:
        return tuple(journal.trial_of(row, str(self.file)) for row in self.rows())

    def lengths(self) -> tuple[int, ...]:
        """Drawn from the first natural-length cycle that ended well; empty until then."""
        return next((tuple(row["recorded_lengths"]) for row in self.rows() if row.get("recorded_lengths")), ())

    def settled(self) -> tuple[design.Entry, ...]:
        """The plan; where vLLM turned out to be refused, other trials stand for those that would have used it."""
        if self.refused is None:
            return self.entries
        kept = [e for e in self.entries[2:] if e.configuration.get("rollout_engine") != "vllm"]
        return (*self.entries[:2], *kept, *self.spare)[: len(self.entries)]

    @property
    def refused(self) -> str | None:
        """Why no trial can use vLLM: the competent one ended before anything ran. ``None`` if it did not."""
        for row in self.rows():
            if row["role"] == "competent" and row["outcome"]["reason"] == FailureReason.ILLEGAL.value:
                return str(row["outcome"]["message"])
        return None

    def missing(self) -> list[str]:
        """What is not in the table, and why."""
        return [*self.left_out, *([f"rollout_engine vllm: {self.refused}"] if self.refused else [])]

    def planned(self) -> tuple[design.Entry, ...]:
        """The whole plan, as far as it is known: which are confirmed follows from the rest."""
        settled = self.settled()
        trials = [t for t in self.trials() if t.number < len(settled)]
        if len(trials) < len(settled):
            return settled
        return (*settled, *design.confirmation(self.contenders(trials), self.wanted.rounds))

    def contenders(self, trials: list[Trial]) -> list[Configuration]:
        """The baseline, the competent one and the leaders, of those that hold."""
        held = evidence.feasible(trials)
        first = [e.configuration for e in self.entries if e.role in ("baseline", "competent")]
        leading = [leader.configuration for leader in evidence.leaders(trials, self.spec.baseline, "trl")]
        return [c for c in dict.fromkeys([*first, *leading]) if c in held]

    def next(self) -> tuple[int, design.Entry] | None:
        """The first planned trial that is not finished; ``None`` when all are."""
        done = {int(row["number"]) for row in self.rows()}
        return next(((n, entry) for n, entry in enumerate(self.planned()) if n not in done), None)

    def protocol(self) -> Protocol:
        """Of the next trial: recorded lengths, or natural cycles to draw them from."""
        lengths = self.lengths()
        return replace(self.spec.protocol, natural=0 if lengths else NATURAL_CYCLES, lengths=lengths)

    def study(self) -> Study:
        return Study(STUDY, self.spec, created_at=0.0, lengths=self.lengths())

    @cached_property
    def runner(self) -> TrialRunner:
        """As a study's: processes forked from a loaded one, and kept where the next trial may use them."""
        settings, clock = self.wanted.settings, SystemClock()
        keeper = None
        if not self.wanted.cold and restores_memory(self.spec.resources.device):
            keeper = WarmWorkerPool(settings.home.workers(STUDY, self.spec.name), clock)
        allow_busy, preload = self.wanted.allow_busy, not self.wanted.cold
        return wiring.runner_for(self.spec, settings, clock, allow_busy=allow_busy, keeper=keeper, preload=preload)

    def execute(self, number: int, entry: design.Entry, deadline: float, room: float, stop: StopToken) -> Trial | None:
        """Run a trial and keep it; ``None`` if the slice or the user ended it, so that it is run again."""
        for attempt in range(1, INFRA_ATTEMPTS + 1):
            trial, heard, outcome = self._attempt(number, entry, attempt, deadline, stop)
            if cut_short(outcome, deadline, room):
                return None
            if outcome.reason is not FailureReason.INFRA or attempt == INFRA_ATTEMPTS:
                break
        state = TrialState.COMPLETE if outcome.ok else TrialState.FAIL
        finished = trial.with_(state=state, outcome=outcome)
        row = journal.row_of(finished, entry.role)
        if outcome.ok and heard.lengths:
            row["recorded_lengths"] = list(heard.lengths)
        journal.append(self.file, row)
        return finished

    def _attempt(
        self, number: int, entry: design.Entry, attempt: int, deadline: float, stop: StopToken
    ) -> tuple[Trial, Heard, Outcome]:
        study, clock, heard = self.study(), SystemClock(), Heard()
        trial = Trial(
            study_id=STUDY,
            number=number,
            kind=TrialKind.BASELINE if number == 0 else KINDS[entry.role],
            configuration=entry.configuration,
            protocol=self.protocol(),
            rows_per_update=study.rows(entry.configuration),
            state=TrialState.RUNNING,
            attempt=attempt,
            pair=entry.pair,
            source=entry.role,
            started_at=clock.now(),
        )
        directory = fresh(self.wanted.out / "attempts", number)
        report = self.runner.run(Assignment(study, trial, directory, deadline), heard, stop)
        shutil.rmtree(directory / "scratch", ignore_errors=True)
        measured = trial.with_(
            cycles=tuple(heard.cycles),
            startup=heard.startup,
            worst_case_passed=heard.worst_case,
            watchdog_peak=report.host_peak,
            finished_at=clock.now(),
            seconds=report.seconds,
        )
        bound = schedule.Deadline(deadline, by_budget=False)
        return measured, heard, schedule.judged(report.outcome, measured, bound)


class Asked:
    """Told by a signal to stop: a trial that runs then is run again."""

    level = 0

    def listen(self) -> None:
        """From now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.level = 2


class Heard:
    """What a running trial reports."""

    enough: bool | None = None

    def __init__(self) -> None:
        self.cycles: list[CycleRecord] = []
        self.startup: dict[str, float] = {}
        self.worst_case = False
        self.lengths: tuple[int, ...] = ()
        self.notes: list[str] = []

    def record(self, record: Record) -> None:
        if isinstance(record, CycleRecord):
            self.cycles.append(record)
        elif isinstance(record, StartupRecord):
            self.startup[record.part.value] = self.startup.get(record.part.value, 0.0) + record.seconds
        elif isinstance(record, WorstCaseRecord):
            self.worst_case = True
        elif isinstance(record, NoteRecord) and record.name == "lengths":
            self.lengths = tuple(int(n) for n in record.data.get("lengths", ()))
        elif isinstance(record, NoteRecord) and "why" in record.data:
            self.notes.append(f"{record.name}: {record.data['why']}")

    def phase(self, phase: CurrentPhase) -> None:
        """Not of interest."""

    def tick(self) -> None:
        """Not of interest."""


def fresh(folder: Path, number: int) -> Path:
    """A folder no earlier attempt at this trial has had."""
    attempt = 1
    while (folder / f"{number}-{attempt}").exists():
        attempt += 1
    return folder / f"{number}-{attempt}"
