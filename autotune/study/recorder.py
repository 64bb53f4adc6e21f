"""Stores and displays the reports of a running trial, and ends the trial when it has been measured enough."""

from __future__ import annotations

from dataclasses import replace

from autotune.domain import Budget, CycleRecord, Outcome, Study, Trial
from autotune.ports import Observer, Store
from autotune.study import schedule
from autotune.study.budget import Ledger
from autotune.study.judging import Judge
from trainer.child.contract import CurrentPhase, NoteRecord, Record, StartupRecord, WorstCaseRecord


class Recorder:
    """``ports.Watcher`` of one attempt.

    Args:
        judge: weighs the trial against the study's others; ``None`` leaves it all its cycles.
    """

    def __init__(
        self,
        store: Store,
        observer: Observer,
        ledger: Ledger,
        study: Study,
        budget: Budget,
        trial: Trial,
        judge: Judge | None = None,
    ) -> None:
        self._store = store
        self._observer = observer
        self._ledger = ledger
        self._study = study
        self._budget = budget
        self._trial = trial
        self._judge = judge
        self.lengths: tuple[int, ...] = ()

    @property
    def enough(self) -> bool | None:
        return None if self._judge is None else self._judge.enough

    def concluded(self, outcome: Outcome) -> Outcome:
        """``outcome`` with the ceiling of a trial that was ended because it cannot win."""
        if self._judge is None or not outcome.ok:
            return outcome
        return replace(outcome, ceiling=self._judge.ceiling)

    def record(self, record: Record) -> None:
        store_record(self._store, self._study.id, self._trial, record)
        if isinstance(record, NoteRecord) and record.name == "lengths":
            self.lengths = tuple(int(n) for n in record.data.get("lengths", ()))
        if isinstance(record, CycleRecord):
            self._trial = self._trial.with_(cycles=(*self._trial.cycles, record))
            if self._judge is not None:
                self._judge.see(self._trial)
            self._observer.trial(self._trial)

    def phase(self, phase: CurrentPhase) -> None:
        self._observer.phase(self._trial, phase)

    def tick(self) -> None:
        self._ledger.persist()
        spent = self._ledger.spent()
        self._observer.tick(spent.wall_s, schedule.predicted_end_s(self._study, self._budget, spent))


def store_record(store: Store, study_id: int, trial: Trial, record: Record) -> None:
    """Durable on return."""
    if isinstance(record, CycleRecord):
        store.add_cycle(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, StartupRecord):
        store.add_startup(study_id, trial.number, trial.attempt, record)
    elif isinstance(record, WorstCaseRecord):
        store.add_worst_case(study_id, trial.number, trial.attempt, record)
    else:
        store.add_note(study_id, trial.number, trial.attempt, record)
