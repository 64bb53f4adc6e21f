"""Random histories of trials, played on a store and on a model of a few lines; they must agree after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from autotune.domain import CycleRecord, Outcome, Trial, TrialDraft, TrialState
from autotune.errors import FinishedTrialError, NotFoundError
from autotune.ports import Store
from tests.support import factories as make
from tests.support.properties import examples
from trainer.child.contract import StartupPart

__all__ = ["StoreMachine", "play"]

NUMBERS = st.integers(0, 4)
ATTEMPTS = st.integers(0, 3)
SECONDS = st.sampled_from([0.0, 0.25, 1.0, 60.0])
FINISHED = st.sampled_from([s for s in TrialState if s.is_finished])


@dataclass
class Attempt:
    started_at: float
    seconds: float | None = None
    cycles: dict[tuple[int, int], CycleRecord] = field(default_factory=dict)
    startup: dict[str, float] = field(default_factory=dict)
    passed: bool = False


@dataclass
class Model:
    number: int
    draft: TrialDraft
    state: TrialState = TrialState.WAITING
    attempts: list[Attempt] = field(default_factory=list)
    outcome: Outcome | None = None
    finished_at: float | None = None

    def value(self) -> Trial:
        last = self.attempts[-1] if self.attempts else None
        ended = [a.seconds for a in self.attempts if a.seconds is not None]
        return Trial(
            study_id=1,
            number=self.number,
            kind=self.draft.kind,
            configuration=self.draft.configuration,
            protocol=self.draft.protocol,
            rows_per_update=self.draft.rows_per_update,
            state=self.state,
            attempt=len(self.attempts),
            source=self.draft.source,
            outcome=self.outcome,
            cycles=tuple(last.cycles[key] for key in sorted(last.cycles)) if last else (),
            startup=last.startup if last else {},
            worst_case_passed=last.passed if last else False,
            watchdog_peak=self.number if self.outcome else None,
            created_at=make.NOW,
            started_at=last.started_at if last else None,
            finished_at=self.finished_at,
            seconds=sum(ended) if ended else None,
        )


class StoreMachine(RuleBasedStateMachine):
    """One study, a handful of trials, every operation on any of them in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.open_empty()
        self.store.create_study(make.study_spec(), make.NOW)
        self.models: list[Model] = []

    def open_empty(self) -> Store:
        """A new, empty store; a subclass says which."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.store.close()

    def model(self, number: int) -> Model | None:
        return self.models[number] if number < len(self.models) else None

    def attempt(self, number: int, attempt: int) -> Attempt | type[Exception]:
        """The attempt a record may be added to, or the error that refuses it."""
        model = self.model(number)
        if model is None:
            return NotFoundError
        if model.state.is_finished:
            return FinishedTrialError
        return model.attempts[attempt - 1] if 1 <= attempt <= len(model.attempts) else NotFoundError

    def tried(self, error: type[Exception] | None, action: Callable[[], object]) -> object:
        """The action's result; it must raise ``error`` if there is one, and grow the revision if there is none."""
        before = self.store.study(1).revision
        if error is None:
            result = action()
            assert self.store.study(1).revision > before
            return result
        with pytest.raises(error):
            action()
        assert self.store.study(1).revision == before
        return None

    def changed(self, number: int, needed: TrialState, action: Callable[[], Trial]) -> Model | None:
        """The model to change likewise, if the trial is in the state the change needs."""
        model = self.model(number)
        refused = None if model and model.state is needed else FinishedTrialError if model else NotFoundError
        self.tried(refused, action)
        return None if refused else model

    @rule(which=st.integers(0, 3))
    def add(self, which: int) -> None:
        draft = make.draft(configuration=make.numbered(which))
        self.models.append(Model(len(self.models), draft))
        added = self.tried(None, lambda: self.store.add_trial(1, draft, make.NOW))
        assert added == self.models[-1].value()

    @rule(number=NUMBERS, now=SECONDS)
    def start(self, number: int, now: float) -> None:
        model = self.changed(number, TrialState.WAITING, lambda: self.store.start_attempt(1, number, now))
        if model:
            model.state = TrialState.RUNNING
            model.attempts.append(Attempt(now))

    @rule(number=NUMBERS, seconds=SECONDS)
    def requeue(self, number: int, seconds: float) -> None:
        model = self.changed(number, TrialState.RUNNING, lambda: self.store.requeue(1, number, seconds))
        if model:
            model.state = TrialState.WAITING
            model.attempts[-1].seconds = seconds

    @rule(number=NUMBERS, state=FINISHED, now=SECONDS, seconds=SECONDS)
    def finish(self, number: int, state: TrialState, now: float, seconds: float) -> None:
        outcome = Outcome() if state is TrialState.COMPLETE else make.oom()
        model = self.changed(
            number, TrialState.RUNNING, lambda: self.store.finish_trial(1, number, state, outcome, now, seconds, number)
        )
        if model:
            model.state, model.outcome, model.finished_at = state, outcome, now
            model.attempts[-1].seconds = seconds

    @rule(number=NUMBERS, attempt=ATTEMPTS, rank=st.integers(0, 1), index=st.integers(0, 2), seconds=SECONDS)
    def cycle(self, number: int, attempt: int, rank: int, index: int, seconds: float) -> None:
        record = make.cycle(index, rank=rank, seconds=seconds + 1)
        at = self.attempt(number, attempt)
        if not isinstance(at, Attempt):
            self.tried(at, lambda: self.store.add_cycle(1, number, attempt, record))
            return
        self.store.add_cycle(1, number, attempt, record)
        at.cycles.setdefault((index, rank), record)

    @rule(number=NUMBERS, attempt=ATTEMPTS, part=st.sampled_from(list(StartupPart)), seconds=SECONDS)
    def startup(self, number: int, attempt: int, part: StartupPart, seconds: float) -> None:
        at = self.attempt(number, attempt)
        refused = None if isinstance(at, Attempt) else at
        self.tried(refused, lambda: self.store.add_startup(1, number, attempt, make.startup(part, seconds)))
        if isinstance(at, Attempt):
            at.startup[part.value] = seconds

    @rule(number=NUMBERS, attempt=ATTEMPTS)
    def worst_case(self, number: int, attempt: int) -> None:
        at = self.attempt(number, attempt)
        refused = None if isinstance(at, Attempt) else at
        self.tried(refused, lambda: self.store.add_worst_case(1, number, attempt, make.worst_case()))
        if isinstance(at, Attempt):
            at.passed = True

    @invariant()
    def the_store_agrees(self) -> None:
        expected = tuple(model.value() for model in self.models)
        assert self.store.trials(1) == expected
        if expected:
            assert self.store.trial(1, len(expected) - 1) == expected[-1]


def play(machine: type[StoreMachine], often: int = 8, full: int = 25, steps: int = 30) -> None:
    """Play random histories, each on a store of its own."""
    run_state_machine_as_test(
        machine,
        settings=settings(examples(often, full), stateful_step_count=steps, suppress_health_check=list(HealthCheck)),
    )
