"""Several trials at once: what may run beside what, what is recorded of it, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import Budget, Outcome, StudyStatus, Trial, TrialKind, TrialState
from autotune.domain.places import PLACE
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.proposals.proposer import make_proposer
from autotune.store import open_store
from autotune.study import neighbours
from autotune.study.budget import GRACE_S
from autotune.study.control import Action, Control
from autotune.study.loop import StudyResult
from benchmarks.decisions.runner import LaneClock, SimulatedCrew
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop, SeenObserver
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner, cycle_seconds, study_loop

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
            "num_generations": [2, 4],
            "logprob_rows": [1, 2, 4, 8],
        }
    }
)


class Killed(BaseException):
    """Stands for SIGKILL."""


class Beside(SimulatedRunner):
    """As the other, in a place: cycles take ``slower`` longer for each trial beside it; ``seen`` is told of starts."""

    def __init__(self, node: Node, clock: LaneClock) -> None:
        super().__init__(clock, tamper=node.tamper)  # type: ignore[arg-type]
        self._node = node

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        running, clock = self._node.running, self._node.clock
        running.add(assignment.trial.number)
        self._node.most = max(self._node.most, len(running))
        began = clock.monotonic()
        try:
            self._node.on_start(assignment.trial)
            return super().run(assignment, Slowed(watcher, self._node), stop)
        finally:
            running.discard(assignment.trial.number)
            self._node.spans.append((assignment.trial.number, began, clock.monotonic()))


class Slowed:
    """A watcher that is told of longer cycles where others run."""

    def __init__(self, inner: Watcher, node: Node) -> None:
        self._inner, self._node = inner, node

    @property
    def enough(self) -> bool | None:
        return self._inner.enough

    def record(self, record: Any) -> None:
        if hasattr(record, "cycle_kind"):
            factor = 1.0 + self._node.slower * (len(self._node.running) - 1)
            phases = {name: seconds * factor for name, seconds in record.phases.items()}
            record = replace(record, seconds=record.seconds * factor, phases=phases)
        self._inner.record(record)

    def phase(self, phase: Any) -> None:
        self._inner.phase(phase)

    def tick(self) -> None:
        self._inner.tick()


class Node:
    """A machine with several places, and a study on it."""

    kind = Beside

    def __init__(self, at_once: int = 4, slower: float = 0.0, gpus: int = 0, sampler: str = "random") -> None:
        self.clock, self.store, self.observer = FakeClock(), open_store(":memory:"), SeenObserver()
        self.spec = f.study_spec(space=SPACE.as_json(), resources=f.resources(gpus=gpus), sampler=sampler)
        self.study = self.store.create_study(self.spec, self.clock.now())
        self.at_once, self.slower = at_once, slower
        self.running: set[int] = set()
        self.starts_when_lost = 0
        self.most = 0
        self.spans: list[tuple[int, float, float]] = []

    def tamper(self, trial: Trial) -> Outcome | None:
        return None

    def on_start(self, trial: Trial) -> None:
        """Nothing."""

    def run(self, budget: Budget, stop: Any = None) -> StudyResult:
        stop = stop or FakeStop()
        self.running.clear()
        lanes = [LaneClock(self.clock) for _ in range(self.at_once)]
        crew = SimulatedCrew([(lane, self.kind(self, lane)) for lane in lanes], self.clock, stop)
        requests = stop if isinstance(stop, Control) else None
        given = {"crew": crew, "observer": self.observer, "stop": stop, "requests": requests}
        return study_loop(self.store, self.study.id, self.clock, replace(budget, at_once=self.at_once), **given).run()

    def beside(self, kind: TrialKind, trials: Sequence[Trial]) -> list[tuple[int, int]]:
        """(trial of ``kind``, another one) that ran at the same time."""
        own = {t.number for t in trials if t.kind is kind}
        return [
            (a, b)
            for a, began, ended in self.spans
            for b, other_began, other_ended in self.spans
            if a in own and a != b and began < other_ended and other_began < ended
        ]


def _searched(trials: Sequence[Trial]) -> list[Trial]:
    return [t for t in trials if t.kind is TrialKind.SEARCH]


def test_all_places_are_used_and_nothing_is_proposed_twice() -> None:
    node = Node()
    result = node.run(Budget(max_trials=21))
    searched = _searched(result.trials)
    assert node.most == 4
    assert len(searched) == 20
    assert len({t.configuration for t in searched}) == 20
    assert [t.number for t in result.trials] == list(range(len(result.trials)))
    assert all(t.state.is_finished for t in result.trials)


def test_the_baseline_runs_alone_and_then_beside_copies_of_itself() -> None:
    node = Node()
    result = node.run(Budget(max_trials=8))
    assert node.beside(TrialKind.BASELINE, result.trials) == []
    copies = [t for t in result.trials if t.source == "beside/4"]
    assert [t.configuration for t in copies] == [node.spec.baseline] * 4
    spans = {number: (began, ended) for number, began, ended in node.spans}
    assert max(spans[t.number][0] for t in copies) < min(spans[t.number][1] for t in copies)
    first = min(spans[t.number][0] for t in _searched(result.trials))
    assert first >= max(spans[t.number][1] for t in copies)
    said = [e for e in node.observer.events if e.kind == "neighbours"]
    assert len(said) == 1
    assert said[0].data["slower"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("slower", "alone"), [(0.005, False), (0.05, True)])
def test_a_confirmation_runs_alone_where_neighbours_disturb(slower: float, alone: bool) -> None:
    node = Node(slower=slower)
    result = node.run(Budget(wall_s=1000.0))
    confirmed = [t for t in result.trials if t.kind is TrialKind.CONFIRM]
    assert len(confirmed) >= 2
    said = next(e for e in node.observer.events if e.kind == "neighbours")
    # The copies end one by one, so the last cycles have fewer beside them.
    assert 2 * slower < said.data["slower"] <= 3 * slower + 1e-9
    assert ("confirmations run alone" in said.message) is alone
    if alone:
        assert node.beside(TrialKind.CONFIRM, result.trials) == []
    pairs = [t.number for t in confirmed]
    assert not [b for a, b in node.beside(TrialKind.CONFIRM, result.trials) if b in pairs]


def test_cycles_and_notes_are_those_of_their_own_trial() -> None:
    node = Node()
    result = node.run(Budget(max_trials=17))
    for trial in _searched(result.trials):
        kept = node.store.trial(node.study.id, trial.number)
        seconds = [c.seconds for c in kept.speed_cycles()]
        assert seconds == pytest.approx([cycle_seconds(trial.configuration)] * len(seconds))
        assert [n.data["where"] for n in node.store.notes(node.study.id, trial.number) if n.name == PLACE]
    kinds = [
        (e.trial, e.kind) for e in node.store.events(node.study.id) if e.kind in ("trial_started", "trial_finished")
    ]
    for trial in result.trials:
        assert [kind for number, kind in kinds if number == trial.number] == ["trial_started", "trial_finished"]
    assert kinds != sorted(kinds, key=lambda one: one[0] or 0), "they were interleaved"


def test_trials_that_ran_beside_each_other_started_in_different_places() -> None:
    node = Node()
    result = node.run(Budget(max_trials=13))
    where = {
        t.number: next(n.data["where"] for n in node.store.notes(1, t.number) if n.name == PLACE) for t in result.trials
    }
    for kind in (TrialKind.SEARCH, TrialKind.VERIFY):
        assert all(where[a] != where[b] for a, b in node.beside(kind, result.trials))


@pytest.mark.parametrize("wall_s", [400.0, 1200.0])
def test_the_budget_holds_and_the_gpus_of_all_places_are_counted(wall_s: float) -> None:
    node = Node(gpus=2)
    node.run(Budget(wall_s=wall_s))
    spent = node.store.spent(node.study.id)
    assert spent[0] <= wall_s + GRACE_S
    assert spent[1] == pytest.approx(spent[0] * 2 * 4)


def test_gpu_hours_are_those_of_all_places() -> None:
    node = Node(gpus=2)
    node.run(Budget(gpu_hours=2.0))
    assert node.store.spent(node.study.id)[1] <= 2.0 * 3600.0 + GRACE_S * 8


class Leaves(Beside):
    """The first place in which trial 7 runs is lost with it."""

    lost = False

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        before, node = self.lost, self._node
        self.lost = before or (assignment.trial.number, assignment.trial.attempt) == (7, 1)
        node.starts_when_lost += before
        report = super().run(assignment, watcher, stop)
        if not self.lost:
            return report
        gone = f.failure(f.domain.FailureReason.INFRA)
        return RunReport(gone, report.seconds, absent=before, place_lost="its node left the cluster")


class Cluster(Node):
    """A node of it is lost."""

    kind = Leaves


def test_a_place_that_is_lost_gets_no_more_trials_and_its_trial_runs_elsewhere() -> None:
    node = Cluster()
    result = node.run(Budget(max_trials=16))
    said = [e.message for e in node.observer.events if e.kind == "place_left"]
    assert len(said) == 1
    assert said[0].endswith("gets no more trials: its node left the cluster")
    assert node.starts_when_lost == 0
    where = [n.data["where"] for n in node.store.notes(node.study.id, 7) if n.name == PLACE]
    assert (result.trials[7].attempt, result.trials[7].feasible) == (2, True)
    assert not said[0].startswith(f"{where[-1]} ")
    assert all(t.state.is_finished for t in result.trials)
    assert len(_searched(result.trials)) == 15


class Dies(Node):
    """Its tuner is killed when trial 9 begins."""

    def on_start(self, trial: Trial) -> None:
        if trial.number == 9 and trial.attempt == 1:
            raise Killed


def test_a_killed_tuner_repeats_what_ran_and_proposes_nothing_twice() -> None:
    node = Dies()
    with pytest.raises(Killed):
        node.run(Budget(max_trials=16))
    left = [t.number for t in node.store.trials(node.study.id) if t.state is TrialState.RUNNING]
    assert len(left) >= 2
    before = {t.number: t.configuration for t in node.store.trials(node.study.id)}
    result = node.run(Budget(max_trials=16))
    assert all(t.state.is_finished for t in result.trials)
    assert {n: result.trials[n].configuration for n in before} == before
    searched = _searched(result.trials)
    assert len({t.configuration for t in searched}) == len(searched) == 15
    assert {t.number for t in result.trials if t.attempt == 2} == set(left)


@pytest.mark.parametrize("sampler", ["tpe", "grey", "random"])
def test_a_resumed_search_proposes_what_it_would_have(sampler: str) -> None:
    node = Node(sampler=sampler)
    made = make_proposer(SPACE, node.spec.baseline, node.spec.resources, sampler, node.spec.seed)
    done = [f.finished(0)]
    pending: list[Trial] = []
    for number in range(1, 6):
        found = not_none(made.propose([*done, *pending], number))
        pending.append(f.trial(number, configuration=found[0], state=TrialState.RUNNING, attempt=1, source=found[1]))
    assert len({t.configuration for t in pending}) == 5
    again = make_proposer(SPACE, node.spec.baseline, node.spec.resources, sampler, node.spec.seed)
    requeued = [t.with_(state=TrialState.WAITING) for t in pending]
    assert again.propose([*done, *requeued], 6) == made.propose([*done, *pending], 6)


class Asking(Node):
    """When trial ``at`` begins, somebody asks for something."""

    at, action = 7, Action.PAUSE

    def on_start(self, trial: Trial) -> None:
        if trial.number == self.at:
            self.store.add_event(self.study.id, f.event(kind=self.action.event_kind, trial=None))


class ResumesLater(FakeClock):
    """Its twentieth nap ends with somebody who resumes the study."""

    node: Node
    naps = 0

    def sleep(self, seconds: float) -> None:
        self.naps += 1
        if self.naps == 20:
            self.node.store.add_event(1, f.event(kind=Action.RESUME.event_kind, trial=None))
        super().sleep(seconds)


def test_a_pause_lets_what_runs_end_and_starts_nothing() -> None:
    node = Asking()
    clock = node.clock = ResumesLater()
    clock.node = node
    result = node.run(Budget(max_trials=12), Control(node.store, 1, FakeStop(), clock))
    assert clock.naps >= 20
    began = {number: start for number, start, _ in node.spans}
    ended = {number: end for number, _, end in node.spans}
    paused_at = began[7]
    later = [n for n in began if began[n] > paused_at + 2.0]
    assert later
    assert min(began[n] for n in later) >= max(ended[n] for n in began if n not in later)
    assert len(_searched(result.trials)) == 11


def test_a_stop_finishes_all_that_run() -> None:
    node = Asking()
    node.action = Action.STOP
    result = node.run(Budget(max_trials=40), Control(node.store, 1, FakeStop(), node.clock))
    assert result.stopped
    assert all(t.state.is_finished for t in result.trials)
    assert len(result.trials) < 20
    assert node.store.study(1).status is StudyStatus.OPEN


def test_without_time_for_copies_the_search_goes_on_and_confirms_alone() -> None:
    trials = [f.finished(0, cycle_seconds=[10.0] * 3)]
    assert neighbours.checked(trials, 4) is None
    assert not neighbours.fine(trials, 4)
    running = f.trial(1, state=TrialState.RUNNING, attempt=1)
    assert neighbours.must_wait([*trials, running], TrialKind.CONFIRM, 4)
    assert not neighbours.must_wait([*trials, running], TrialKind.SEARCH, 4)
    assert not neighbours.must_wait(trials, TrialKind.CONFIRM, 4)


def test_a_copy_that_fails_says_that_neighbours_disturb() -> None:
    failed = [f.failed(n, f.oom(), kind=TrialKind.VERIFY, source="beside/2") for n in (1, 2)]
    check = not_none(neighbours.checked([f.finished(0), *failed], 2))
    assert not check.fine
    assert "not all held" in check.sentence()


def test_a_machine_that_broke_a_copy_owes_it_again() -> None:
    study = f.study()
    infra = f.failed(1, f.failure(f.domain.FailureReason.INFRA), kind=TrialKind.VERIFY, source="beside/2")
    assert neighbours.due(study, [f.finished(0), infra], 2) is not None
    assert neighbours.due(study, [f.finished(0)], 1) is None
    assert neighbours.due(study, [f.failed(0)], 2) is None
