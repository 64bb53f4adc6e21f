"""Runs real TRL trials of several processes through the tuner's own runner, as a study would."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.domain import CycleRecord, Outcome
from autotune.frameworks import TrlFramework
from autotune.ports import Assignment, RunReport
from autotune.running.local import LocalRunner, home_tag
from autotune.running.preloaded import Preloads
from tests.contracts.runner_suite import RealClock, Seen
from tests.support import factories
from tests.support.fakes import FakeStop
from tests.support.trl_trials import tiny_spec, training_python
from trainer.child.contract import NoteRecord, Record, RewardSpec, TrialSpec, WorstCaseRecord

RANKS = 2


@dataclass(frozen=True)
class Given(TrlFramework):
    """TRL, told what to run instead of asked to render it."""

    spec: TrialSpec

    def render(self, assignment: Assignment) -> TrialSpec:
        return self.spec


@dataclass
class RankTrial:
    """One supervised trial and what came of it."""

    home: Path
    spec: TrialSpec
    seen: Seen = field(default_factory=Seen)
    report: RunReport | None = None
    preloads: Preloads | None = None
    """Forks it, if it is of one process."""

    def run(self, seconds: float = 240.0) -> RankTrial:
        study = factories.study(spec=factories.study_spec(resources=factories.resources(cpu_ranks=RANKS)))
        wanted = Assignment(study, factories.trial(attempt=1), self.home / "attempt", seconds)
        runner = LocalRunner(training_python(), Given(self.spec), self.tag, RealClock(), preloads=self.preloads)
        self.report = runner.run(wanted, self.seen, FakeStop())
        return self

    @property
    def tag(self) -> str:
        return home_tag(self.home)

    @property
    def outcome(self) -> Outcome:
        return self.report.outcome

    @property
    def log(self) -> str:
        return (self.home / "attempt" / "log.txt").read_text(errors="replace")

    def records(self, kind: type[Record]) -> list[Any]:
        return [record for record in self.seen.records if isinstance(record, kind)]

    def cycles(self, rank: int) -> list[CycleRecord]:
        return sorted((c for c in self.seen.cycles() if c.rank == rank), key=lambda c: c.index)

    @property
    def worst_cases(self) -> list[WorstCaseRecord]:
        return self.records(WorstCaseRecord)

    @property
    def notes(self) -> dict[str, NoteRecord]:
        return {note.name: note for note in self.records(NoteRecord)}


def rank_spec(tiny: Path, reward: RewardSpec, **changes: Any) -> TrialSpec:
    """Two ranks of 2 rows, 16 rows per update; ``knobs`` change the configuration."""
    knobs = {"micro_batch_size": 2, "gradient_accumulation_steps": 4, **changes.pop("knobs", {})}
    return replace(tiny_spec(tiny, reward, knobs=knobs, **changes), world_size=RANKS)


def shared_memory() -> set[str]:
    """Names of the segments this machine has now."""
    return set(os.listdir("/dev/shm"))
