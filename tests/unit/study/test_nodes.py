"""Trials on several nodes: no gain is a faster node's, and both halves of a round run on one of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from api.cache import StudyCache
from autotune.documents.recommendation import gain_json
from autotune.domain import Budget, Trial, TrialKind, TrialState
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.proposals.proposer import make_proposer
from autotune.proposals.translation import evidence as observations
from autotune.recommendation.reading import read_study
from autotune.settings import read_settings
from autotune.statistics import evidence, nodes
from autotune.store import open_store
from autotune.study import confirmation, neighbours, schedule
from autotune.study.budget import Spent
from autotune.study.crews import Alone
from autotune.study.loop import StudyResult
from autotune.study.neighbours import Slot, confirming, node_due, waits_for, whole_rounds
from autotune.wording.sentences import gain_words
from benchmarks.decisions.runner import LaneClock, SimulatedCrew
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop, SeenObserver
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner, study_loop

BASE, FAST = f.configuration(), f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
SLOWER = 1.1
"""Times its seconds that a cycle takes on node ``b``."""


def ran(number: int, node: str, seconds: float = 10.0, **changes: object) -> Trial:
    """A finished trial as long as its node makes it."""
    cycles = [seconds * (SLOWER if node == "b" else 1.0) * factor for factor in (0.998, 1.0, 1.002)]
    return f.finished(number, cycle_seconds=cycles, **{"configuration": BASE, **changes}).with_(node=node)


def copies(each: int = 4) -> list[Trial]:
    """The baseline in all places of two nodes."""
    first = ran(0, "a", kind=TrialKind.BASELINE)
    return [
        first,
        *(ran(1 + n, "ab"[n % 2], kind=TrialKind.VERIFY, source=neighbours.source(2 * each)) for n in range(2 * each)),
    ]


def test_the_effect_of_a_node_is_what_its_copies_show() -> None:
    found = nodes.effects(copies(8))
    assert found["a"].log - found["b"].log == pytest.approx(math.log(SLOWER), rel=0.1)
    few = nodes.effects(copies(1))
    assert 0 < few["a"].log - few["b"].log < found["a"].log - found["b"].log, "one copy each proves little"
    assert few["a"].variance > found["a"].variance > 0


def test_one_node_or_none_has_no_effect_and_changes_no_trial() -> None:
    alone = tuple(t.with_(node="a") for t in copies())
    for trials in (alone, tuple(t.with_(node="") for t in alone)):
        assert nodes.effects(trials) == {}
        assert nodes.levelled(trials) is trials


def test_search_trials_are_put_on_one_level() -> None:
    trials = nodes.levelled(
        [*copies(8), ran(20, "a", configuration=FAST), ran(21, "b", 10.0, configuration=f.numbered(3))]
    )
    merits = {t.configuration: t.merit for t in trials if t.kind is TrialKind.SEARCH}
    speeds = {t.configuration: t.tokens_per_hour for t in trials if t.kind is TrialKind.SEARCH}
    assert speeds[FAST] / speeds[f.numbered(3)] == pytest.approx(SLOWER)  # type: ignore[operator]
    assert merits[FAST] / merits[f.numbered(3)] == pytest.approx(1.0, abs=0.02)  # type: ignore[operator]
    values = {e.configuration: e.value for e in observations(trials)}
    assert values[FAST] == pytest.approx(values[f.numbered(3)], abs=0.02)


def test_a_trial_stays_the_same_object_while_no_effect_changes() -> None:
    levels, trials = nodes.Levels(), tuple(copies())
    first = levels.level(trials)
    again = levels.level((*trials, ran(20, "b", configuration=FAST)))
    assert all(a is b for a, b in zip(first, again, strict=False))
    later = levels.level((*trials, ran(20, "b", kind=TrialKind.VERIFY)))
    assert later[1] is not first[1]


def test_halves_on_two_nodes_are_no_pair() -> None:
    halves = [
        ran(9, "a", configuration=FAST, kind=TrialKind.CONFIRM, pair=0),
        ran(10, "b", kind=TrialKind.CONFIRM, pair=0),
    ]
    apart = evidence.gain([*copies(), *halves], FAST, BASE)
    together = evidence.gain([*copies(), halves[0], ran(10, "a", kind=TrialKind.CONFIRM, pair=0)], FAST, BASE)
    assert (apart.pairs, not_none(together).pairs) == (0, 1)


def _with_rounds(trials: list[Trial], seconds: float, rounds: int) -> list[Trial]:
    """``trials``, and rounds on one node in which the other configuration's cycles take ``seconds``."""
    added = list(trials)
    for pair in range(rounds):
        for configuration, cycle in ((BASE, 10.0), (FAST, seconds)):
            number = len(trials) + len(added)
            added.append(ran(number, "a", cycle, configuration=configuration, kind=TrialKind.CONFIRM, pair=pair))
    return added


def test_a_gain_has_to_be_surer_where_trials_run_on_several_nodes() -> None:
    trials = _with_rounds(copies(), 9.0, rounds=2)
    across = evidence.gain(trials, FAST, BASE)
    here = evidence.gain([t.with_(node="a") for t in trials], FAST, BASE)
    assert across.value == here.value
    assert across.low < here.low < here.high < across.high
    assert "(99.9 % interval " in gain_words(across)
    assert "(95 % interval " in gain_words(here)
    assert (gain_json(across)["level"], gain_json(here)["level"]) == (0.999, 0.95)


@pytest.mark.parametrize(("node", "most"), [("a", confirmation.MAX_ROUNDS), ("b", 2 * confirmation.MAX_ROUNDS)])
def test_a_tie_on_several_nodes_gets_twice_as_many_rounds(node: str, most: int) -> None:
    searched = [*copies(), ran(20, "a", 9.99, configuration=FAST)]
    for rounds in (most - 1, most):
        trials = [t if t.node == "a" else t.with_(node=node) for t in _with_rounds(searched, 9.99, rounds)]
        plan = confirmation.next_trial(f.study(), trials)
        assert (plan is None) == (rounds == most)


def test_a_gain_from_search_trials_is_as_uncertain_as_the_nodes_are() -> None:
    levelled = nodes.levelled([*copies(2), ran(20, "b", configuration=FAST)])
    found = evidence.gain(levelled, FAST, BASE)
    known = evidence.gain([t.with_(node_variance=0.0) for t in levelled], FAST, BASE)
    assert found.high - found.low > known.high - known.low
    assert found.low < 0 < found.high


def test_a_node_that_came_later_runs_the_baseline_once() -> None:
    study, trials = f.study(), copies()
    slot = Slot(node="c", nodes=("a", "b", "c"))
    draft = not_none(node_due(study, trials, slot))
    assert (draft.kind, draft.configuration, draft.source) == (TrialKind.VERIFY, study.spec.baseline, "node/c")
    running = f.trial(30, kind=TrialKind.VERIFY, configuration=BASE, state=TrialState.RUNNING).with_(node="c")
    assert node_due(study, [*trials, running], slot) is None
    for other in (Slot(node="a", nodes=("a", "b")), Slot(node="", nodes=("", ""))):
        assert node_due(study, trials, other) is None
    assert node_due(study, [], slot) is None, "before the baseline has held, nothing is known to run"


def test_where_no_time_is_left_for_a_node_of_its_own_the_study_still_ends_with_a_reason() -> None:
    study, trials = f.study(), [t.with_(seconds=50.0) for t in copies()]
    slot = Slot(node="c", nodes=("c", "d"))
    proposer = make_proposer(SPACE, study.spec.baseline, study.spec.resources, "random", 0)
    for wall_s, kind in ((1e6, schedule.NextTrial), (61.0, schedule.StudyEnd)):
        step = schedule.next_step(study, trials, Budget(wall_s=wall_s, at_once=8), Spent(60.0, 0.0), proposer, slot)
        assert isinstance(step, kind)
    step = schedule.next_step(study, trials, Budget(wall_s=1e6, at_once=8), Spent(60.0, 0.0), proposer, slot)
    assert isinstance(step, schedule.NextTrial)
    assert step.draft.source == "node/c"


def test_the_other_half_of_a_round_is_for_the_node_of_the_first() -> None:
    half = ran(9, "b", configuration=FAST, kind=TrialKind.CONFIRM, pair=0)
    both = ("a", "a", "b", "b")
    assert not confirming([*copies(), half], 0, Slot(node="a", nodes=both))
    assert confirming([*copies(), half], 0, Slot(node="b", nodes=both))
    waiting = f.trial(10, kind=TrialKind.CONFIRM, pair=0)
    assert waits_for([*copies(), half, waiting], waiting, Slot(node="a", nodes=both))
    assert not waits_for([*copies(), half, waiting], waiting, Slot(node="b", nodes=both))
    assert not waits_for([*copies(), half, waiting], waiting, Slot(node="a", nodes=("a", "a"))), "b is gone"


def test_a_half_whose_node_is_gone_is_owed_again_with_its_other_half() -> None:
    half = ran(9, "b", 9.0, configuration=FAST, kind=TrialKind.CONFIRM, pair=0)
    trials = [*copies(), ran(8, "a", 9.0, configuration=FAST), half]
    kept = whole_rounds(trials, ("a",))
    assert half not in kept
    assert whole_rounds(trials, ("a", "b")) is trials
    plan = not_none(confirmation.next_trial(f.study(), kept))
    assert set(plan.round) == {BASE, FAST}
    other = ran(10, "b", kind=TrialKind.CONFIRM, pair=0)
    assert whole_rounds([*trials, other], ("a",)) == [*trials, other], "a whole round stands, wherever it ran"


def test_a_half_on_a_node_is_owed_again_where_the_study_goes_on_without_a_cluster() -> None:
    half = ran(9, "a", 9.0, configuration=FAST, kind=TrialKind.CONFIRM, pair=0)
    trials = [*copies(), ran(8, "a", 9.0, configuration=FAST), half]
    assert half not in whole_rounds(trials, ("",))
    here = half.with_(node="")
    assert here in whole_rounds([*trials[:-1], here], ("",))
    both = [*trials, ran(10, "", kind=TrialKind.CONFIRM, pair=0)]
    assert half not in whole_rounds(both, ("",)), "halves on two machines are no round"


def test_a_figure_from_outside_the_cluster_is_as_uncertain_as_an_unknown_node() -> None:
    trials = [
        ran(0, "", kind=TrialKind.BASELINE),
        ran(1, "", kind=TrialKind.VERIFY),
        ran(2, "a", 9.0, configuration=FAST),
    ]
    found = not_none(evidence.gain(nodes.levelled(trials), FAST, BASE))
    assert found.low < 0 < found.high, "that node may be the faster one"


def test_neighbours_are_compared_on_the_node_where_the_baseline_ran_alone() -> None:
    check = not_none(neighbours.checked(copies(), 8))
    assert check.slower == pytest.approx(0.0, abs=1e-3)


class OnNode(SimulatedRunner):
    """Takes ``SLOWER`` times as long on node ``b``; tells of what it began."""

    def __init__(self, clock: LaneClock, node: str) -> None:
        super().__init__(clock)  # type: ignore[arg-type]
        self._slower = SLOWER if node == "b" else 1.0

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        return super().run(assignment, Slowed(watcher, self._slower), stop)  # type: ignore[arg-type]


class Slowed:
    def __init__(self, inner: Watcher, factor: float) -> None:
        self._inner, self._factor = inner, factor

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def record(self, record: object) -> None:
        if hasattr(record, "cycle_kind"):
            phases = {name: s * self._factor for name, s in record.phases.items()}
            record = replace(record, seconds=record.seconds * self._factor, phases=phases)  # type: ignore[type-var]
        self._inner.record(record)  # type: ignore[arg-type]


SPACE = SearchSpace.from_json({"knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}})


def studied(database: str = ":memory:") -> StudyResult:
    """A study on two nodes of two places."""
    clock, store, stop = FakeClock(), open_store(database), FakeStop()
    spec = f.study_spec(space=SPACE.as_json(), sampler="random")
    study = store.create_study(spec, clock.now())
    places = ("a", "a", "b", "b")
    lanes = [(lane, OnNode(lane, node)) for node in places for lane in [LaneClock(clock)]]
    crew = SimulatedCrew(lanes, clock, stop, nodes=places)
    return study_loop(store, study.id, clock, Budget(max_trials=8, at_once=4), crew=crew, stop=stop).run()


def test_a_study_on_two_nodes_confirms_on_one_and_has_a_baseline_on_each() -> None:
    result = studied()
    assert {t.node for t in result.trials} == {"a", "b"}
    own = [t for t in result.trials if t.configuration == result.study.spec.baseline and t.kind is TrialKind.VERIFY]
    assert sorted(t.node for t in own) == ["a", "a", "b", "b"]
    rounds: dict[int, set[str]] = {}
    for trial in result.trials:
        if trial.kind is TrialKind.CONFIRM and trial.pair is not None:
            rounds.setdefault(trial.pair, set()).add(trial.node)
    assert rounds
    assert all(len(places) == 1 for places in rounds.values())
    gain = not_none(result.recommendation).rows[0].gain
    assert gain is None or gain.pairs > 0


def test_page_and_terminal_have_the_nodes_speeds_and_the_answer_as_it_was_written(tmp_path: Path) -> None:
    database = str(tmp_path / "autotune.sqlite")
    study, store = studied(database).study, open_store(database)
    cache = StudyCache(read_settings({}, tmp_path, database), lambda: open_store(database))
    here, page = read_study(store, study), cache.snapshot(study.id)
    cache.close()
    assert {t.number: t.node_log for t in here.trials} == {t.number: t.node_log for t in page.trials}
    assert any(t.node_log for t in page.trials)
    assert [not_none(one.recommendation).notes for one in (here, page)] == [not_none(here.stored).notes] * 2


class UntilHalf(SeenObserver):
    """Asks for a stop when half a round has ended."""

    def __init__(self, stop: FakeStop) -> None:
        super().__init__()
        self._stop = stop

    def trial(self, trial: Trial) -> None:
        super().trial(trial)
        if trial.kind is TrialKind.CONFIRM and trial.state.is_finished:
            self._stop.level = 1


def test_a_study_broken_off_in_a_round_ends_it_on_one_machine_without_the_cluster() -> None:
    clock, store, stop = FakeClock(), open_store(":memory:"), FakeStop()
    spec = f.study_spec(space=SPACE.as_json(), sampler="random")
    study = store.create_study(spec, clock.now())
    each = [(lane, OnNode(lane, node)) for node in "ab" for lane in [LaneClock(clock)]]
    begun = SimulatedCrew(each, clock, stop, nodes=("a", "b"))

    def run(crew: object, budget: Budget, observer: SeenObserver) -> StudyResult:
        return study_loop(store, study.id, clock, budget, crew=crew, observer=observer, stop=stop).run()

    run(begun, Budget(max_trials=4, at_once=2), UntilHalf(stop))
    stop.level = 0
    result = run(Alone(OnNode(clock, ""), stop), Budget(max_trials=4), SeenObserver())  # type: ignore[arg-type]
    halves = [t for t in result.trials if t.kind is TrialKind.CONFIRM and t.pair == 0]
    assert {t.node for t in halves} == {"", *{t.node for t in halves[:1]}}
    assert len({t.configuration for t in halves if t.node == ""}) >= 2, "the whole round again"
    gain = not_none(result.recommendation).rows[0].gain
    assert gain is None or gain.pairs > 0
