"""Reads a study's trials; stores and displays the reports of a running one, and ends it once it is measured enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from autotune.domain import Budget, CycleRecord, Outcome, Study, Trial
from autotune.ports import Observer, Store
from autotune.statistics.nodes import Levels
from autotune.study.budget import Ledger, remaining_s
from autotune.study.judging import Judge
from trainer.child.contract import CurrentPhase, NoteRecord, Record, StartupRecord, WorstCaseRecord


class History:
    """Reads a study's trials while its lock is held. Finished trials never change and numbers ascend, so each call
    returns the same objects for the trials before the first unfinished one."""

    def __init__(self, store: Store, study_id: int) -> None:
        self._store = store
        self._study_id = study_id
        self._ended: tuple[Trial, ...] = ()
        self.levels = Levels()

    def trials(self) -> tuple[Trial, ...]:
        """Returns ``Store.trials`` of the study, with the effects of their nodes."""
        since = self._ended[-1].number + 1 if self._ended else 0
        new = self._store.trials(self._study_id, since)
        ended = tuple(takewhile(lambda trial: trial.state.is_finished, new))
        self._ended = (*self._ended, *ended)
        return self.levels.level((*self._ended, *new[len(ended) :]))


@dataclass(eq=False)
class Recorder:
    """``ports.Watcher`` of one attempt."""

    store: Store
    observer: Observer
    ledger: Ledger
    study: Study
    budget: Budget
    trial: Trial
    judge: Judge | None = None
    """Early-stopping judge of the trial; ``None``: it runs all its cycles."""
    check: Callable[[Trial], None] = lambda _: None
    """Called with the trial at each tick and after each cycle; its exception ends the attempt."""
    lengths: tuple[int, ...] = ()
    """Completion lengths in tokens that the trial drew from its natural cycles; empty before."""

    @property
    def enough(self) -> bool | None:
        return None if self.judge is None else self.judge.enough

    def concluded(self, outcome: Outcome) -> Outcome:
        """Returns ``outcome`` with the ceiling of a trial that was ended because it cannot win."""
        if self.judge is None or not outcome.ok:
            return outcome
        return replace(outcome, ceiling=self.judge.ceiling)

    def record(self, record: Record) -> None:
        store_record(self.store, self.study.id, self.trial, record)
        if isinstance(record, NoteRecord) and record.name == "lengths":
            self.lengths = tuple(int(n) for n in record.data.get("lengths", ()))
        if isinstance(record, CycleRecord):
            self.trial = self.trial.with_(cycles=(*self.trial.cycles, record))
            if self.judge is not None:
                self.judge.see(self.trial)
            self.observer.trial(self.trial)
            self.check(self.trial)

    def phase(self, phase: CurrentPhase) -> None:
        self.observer.phase(self.trial, phase)

    def tick(self) -> None:
        self.ledger.persist()
        self.check(self.trial)
        spent = self.ledger.spent()
        left = remaining_s(self.budget, spent, self.study.spec.resources.total_gpus)
        self.observer.tick(spent.wall_s, None if left is None else max(0.0, left))


def store_record(store: Store, study_id: int, trial: Trial, record: Record) -> None:
    """Stores a record of a running trial; it is durable on return."""
    if isinstance(record, CycleRecord):
        store.add_cycle(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, StartupRecord):
        store.add_startup(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, WorstCaseRecord):
        store.add_worst_case(study_id, trial.number, trial.attempt, record)
    else:
        store.add_note(study_id, trial.number, trial.attempt, record)
