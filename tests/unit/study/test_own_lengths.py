"""A knob that moves completion lengths: what its trials replay, what they are compared with, and where they rank."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.domain import Budget, Configuration, FailureReason, Outcome, Trial, TrialKind, TrialState
from autotune.recommendation.reading import StudyReading
from autotune.recommendation.recommend import recommend
from autotune.report import report
from autotune.statistics import evidence
from autotune.statistics.evidence import Row
from autotune.study import confirmation, judging, protocols
from autotune.study.loop import StudyResult
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_names
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner, natural_lengths
from tests.unit.study.test_study import House

SPACE = SearchSpace.from_json({"knobs": {"micro_batch_size": [1, 2, 4, 8], "temperature": [0.5, 1.0, 2.0]}})
SPEC = f.study_spec(space=SPACE.as_json(), baseline=SPACE.complete(f.configuration(), f.resources()))
WARM = SPEC.baseline.with_(temperature=2.0)


class Warm(House):
    """A study whose space varies the temperature beside a speed knob."""

    space = SPACE

    def __init__(self) -> None:
        super().__init__(SPEC)


@pytest.fixture(scope="module")
def study() -> StudyResult:
    """Of an hour in which completions at temperature 2 are twice as long and take no longer."""
    return Warm().run(Budget(wall_s=3600.0))


def at(trial: Trial) -> float:
    return float(trial.configuration["temperature"])


def test_no_trial_replays_lengths_of_another_temperature(study: StudyResult) -> None:
    assert {at(t) for t in study.trials} == {0.5, 1.0, 2.0}
    for trial in study.trials:
        own = sorted(natural_lengths(trial.configuration))
        assert sorted(trial.protocol.lengths) in ([], own)
        assert all(sorted(cycle.lengths) == own for cycle in trial.speed_cycles())


def test_the_first_at_a_temperature_draws_them_and_all_later_ones_replay_what_it_drew(study: StudyResult) -> None:
    for temperature in (0.5, 1.0, 2.0):
        first, *later = (t for t in study.trials if at(t) == temperature and t.fits)
        assert (first.protocol.lengths, first.protocol.natural > 0) == ((), True)
        assert later
        assert all(sorted(t.protocol.lengths) == sorted(first.speed_cycles()[0].lengths) for t in later)
    assert study.study.lengths == f.LENGTHS


def test_the_headline_keeps_the_temperature_and_the_other_row_says_what_it_changes(study: StudyResult) -> None:
    headline, permitted = study.recommendation.rows
    assert headline.configuration["temperature"] == SPEC.baseline["temperature"] == 1.0
    assert headline.gain is not None
    assert permitted.configuration["temperature"] == 2.0
    assert permitted.title.startswith("If you allow temperature 2.0")
    assert permitted.confirmed
    (note,) = (n for n in study.recommendation.notes if "temperature" in n)
    assert "changes what is learned: completions become longer or shorter" in note
    assert "(mean 88, p95 128 tokens instead of mean 56, p95 128)" in note
    assert "completions/hour" in note


def test_the_report_does_not_say_that_all_did_the_same_work(study: StudyResult) -> None:
    text = report(StudyReading(study.study, study.trials, (0.0, 0.0)))
    assert "At another temperature completions become longer or shorter" in text
    same = [t for t in study.trials if at(t) == 1.0]
    assert "At another temperature" not in report(StudyReading(study.study, tuple(same), (0.0, 0.0)))


def test_none_is_ended_early_and_none_ends_one_at_the_baselines_lengths(study: StudyResult) -> None:
    others = [t for t in study.trials if t.kind is TrialKind.SEARCH and at(t) != 1.0]
    assert others
    assert all(t.protocol.looks == () and t.state is TrialState.COMPLETE for t in others)
    fast = f.finished(1, configuration=WARM, cycle_seconds=1.0)
    rounded = SPEC.baseline.with_(precision="bf16")  # answers the second row, as the fast one does
    known = judging.known_of(SPEC, [f.finished(0, configuration=SPEC.baseline), fast], rounded)
    assert not_none(known.rival).trial == 0


def test_only_who_asks_gets_another_temperature_and_never_in_the_headlines_candidates() -> None:
    same, every = (SPACE.candidates(SPEC.baseline, SPEC.resources, same_learning=one) for one in (True, False))
    assert {c["temperature"] for c in same} == {1.0}
    assert {c["temperature"] for c in every} == {0.5, 1.0, 2.0}
    presets = [SearchSpace.load(name) for name in preset_names()]
    assert not any("temperature" in {*space.values, *space.fixed} for space in presets)


def test_lengths_of_another_temperature_are_not_the_studys() -> None:
    """The baseline fails, so that the first trial that holds may be at any temperature."""
    house = Warm()

    def fails(trial: Trial) -> Outcome | None:
        bad = at(trial) == 1.0 and len([t for t in house.store.trials(1) if t.fits]) == 0
        return Outcome(FailureReason.CRASH, message="not yet") if bad else None

    result = house.run(Budget(max_trials=9), runner=SimulatedRunner(house.clock, tamper=fails))
    first = next(t for t in result.trials if t.fits)
    assert at(first) != 1.0
    drawn = [t for t in result.trials if t.fits and at(t) == 1.0]
    assert drawn
    assert drawn[0].protocol.lengths == ()
    assert result.study.lengths == f.LENGTHS
    assert all(sorted(c.lengths) == sorted(f.LENGTHS) for t in drawn for c in t.speed_cycles())


def test_where_only_another_temperature_holds_the_answer_is_told_as_permitted() -> None:
    trials = [
        f.failed(0, configuration=SPEC.baseline, kind=TrialKind.BASELINE),
        f.finished(1, configuration=WARM, cycle_seconds=5.0),
    ]
    (leader,) = evidence.leaders(trials, SPEC.baseline, "trl")
    assert leader.row is Row.PERMITTED
    found = not_none(recommend(SPEC, trials, ""))
    assert [row.title for row in found.rows] == ["If you allow temperature 2.0"]


def drawn(number: int, configuration: Configuration, seconds: float = 10.0, rows: int = 1) -> Trial:
    """A trial that drew its lengths from ``rows`` times as many natural completions as a cycle has."""
    lengths = natural_lengths(configuration)
    made = f.finished(
        number, configuration=configuration, cycle_seconds=seconds, protocol=f.protocol(natural=rows, lengths=())
    )
    cycles = [replace(c, lengths=lengths, completion_tokens=sum(lengths)) for c in made.cycles]
    natural = [f.cycle(90 + i, lengths=lengths, cycle_kind=f.domain.CycleKind.NATURAL) for i in range(rows)]
    return made.with_(cycles=(*natural, *cycles))


def test_a_gain_holds_what_so_few_completions_leave_open_of_the_lengths() -> None:
    few = [drawn(0, SPEC.baseline), drawn(1, WARM)]
    many = [drawn(0, SPEC.baseline, rows=100), drawn(1, WARM, rows=100)]
    wide, narrow = (not_none(evidence.gain(trials, WARM, SPEC.baseline)) for trials in (few, many))
    assert wide.value == pytest.approx(narrow.value)
    width = [math.log1p(g.high) - math.log1p(g.low) for g in (wide, narrow)]
    assert width[0] > 1.5 * width[1]
    assert wide.low < 0 < wide.value, "8 completions of each side prove nothing"


def test_at_the_same_lengths_nothing_is_left_open() -> None:
    faster = SPEC.baseline.with_(micro_batch_size=4, gradient_accumulation_steps=2)
    warm = WARM.with_(micro_batch_size=4, gradient_accumulation_steps=2)
    pairs, widths = [(SPEC.baseline, faster), (WARM, warm)], []
    for over, configuration in pairs:
        found = not_none(evidence.gain([drawn(0, over), drawn(1, configuration, 8.0)], configuration, over))
        widths.append(math.log1p(found.high) - math.log1p(found.low))
    other = not_none(evidence.gain([drawn(0, SPEC.baseline), drawn(1, WARM, 8.0)], WARM, SPEC.baseline))
    assert widths[0] == pytest.approx(widths[1])
    assert widths[0] < math.log1p(other.high) - math.log1p(other.low)


def test_a_round_of_confirmations_holds_it_too() -> None:
    trials = [drawn(0, SPEC.baseline), drawn(1, WARM)]
    pairs = [t.with_(number=t.number + 2, kind=TrialKind.CONFIRM, pair=0) for t in trials]
    found = not_none(evidence.gain([*trials, *pairs], WARM, SPEC.baseline))
    assert found.pairs == 1
    assert found.low < 0


def test_what_runs_again_replays_what_its_own_temperature_recorded() -> None:
    study = f.study(spec=SPEC)
    trials = [f.finished(0, configuration=SPEC.baseline), drawn(1, WARM)]
    own = natural_lengths(WARM)
    other = WARM.with_(temperature=0.5)
    assert protocols.retry_draft(study, trials, WARM).protocol.lengths == own
    assert confirmation.protocol_for(study, trials, WARM).lengths == own
    assert confirmation.protocol_for(study, trials, SPEC.baseline).lengths == f.LENGTHS
    fresh = protocols.retry_draft(study, trials, other).protocol
    assert (fresh.lengths, fresh.natural > 0) == ((), True)
    failed = [trials[0], f.failed(1, configuration=WARM)]
    assert protocols.protocol_of(study, failed, WARM).lengths == ()
