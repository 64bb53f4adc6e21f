"""What ran FP8 in emulation is never ranked, never recommended, and says so everywhere."""

from __future__ import annotations

import pytest
from rich.console import Console

from autotune.cli.screens.study import end_screen
from autotune.cli.screens.trial import trial_screen
from autotune.documents.study import trial_json
from autotune.domain import CycleKind, Trial
from autotune.errors import UsageError
from autotune.insights.ranking import measured
from autotune.insights.standings import best_first, outcome_word, standings
from autotune.recommendation.comparison import compare_trials
from autotune.recommendation.export import ExportChoice, chosen
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.recommend import native_best, recommend, row_of
from autotune.report.document import report
from autotune.statistics import evidence
from autotune.study import confirmation
from search_spaces.native import emulated, in_fp8
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec()
BASELINE = SPEC.baseline
EMULATED = f.configuration(precision="fp8", fp8_emulate=True)
REAL = f.configuration(precision="fp8", fp8_emulate=False)
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)


def ran() -> list[Trial]:
    """The baseline, a real gain, and an emulated trial that looks three times as fast."""
    return [
        f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]),
        f.finished(1, configuration=FASTER, cycle_seconds=[7.9, 8.0, 8.1]),
        f.finished(2, configuration=EMULATED, cycle_seconds=[2.9, 3.0, 3.1]),
    ]


def shown(renderable: object) -> str:
    console = Console(width=80, record=True, file=None)
    with console.capture() as captured:
        console.print(renderable)
    return " ".join(captured.get().split())


def test_only_fp8_can_be_emulated() -> None:
    """The switch rests where nothing is computed in FP8."""
    assert emulated(EMULATED)
    assert not emulated(REAL)
    assert not emulated(f.configuration(precision="bf16", fp8_emulate=True))


def test_it_leads_nothing_and_is_not_confirmed() -> None:
    found = evidence.leaders(ran(), BASELINE, "trl")
    assert [leader.configuration for leader in found] == [FASTER]
    plan = not_none(confirmation.next_trial(f.study(spec=SPEC), ran()))
    assert EMULATED not in plan.round
    best = native_best(SPEC, ran(), evidence.Row.PERMITTED)
    assert best is None or best.configuration != EMULATED
    assert row_of(SPEC, ran(), EMULATED) is None


def test_no_figure_is_stated_over_it_or_of_it() -> None:
    assert evidence.gain(ran(), FASTER, EMULATED) is None
    assert evidence.reference([ran()[2]], BASELINE) is None
    assert [t.number for t in measured(ran())] == [0, 1]
    assert EMULATED not in [row.configuration for row in standings(ran(), BASELINE, "trl")]
    assert [t.number for t in best_first(ran())] == [1, 0, 2]


def test_the_recommendation_says_that_it_was_emulated() -> None:
    found = not_none(recommend(SPEC, ran(), ""))
    assert EMULATED not in [row.configuration for row in found.rows]
    assert any("emulated in trials #2" in note for note in found.notes)


def test_it_is_compared_with_nothing_and_not_exported() -> None:
    study = f.study()
    found = compare_trials(StudyReading(study, ran()), ran()[0], ran()[2])
    assert (found.ratio, found.b.outcome) == (None, "emulated")
    with pytest.raises(UsageError, match="trial 2 ran FP8 in emulation"):
        chosen(StudyReading(study, ran()), ExportChoice(trial=2))


def test_an_emulated_baseline_is_no_reference() -> None:
    spec = f.study_spec(baseline=EMULATED)
    trials = [f.finished(0, configuration=EMULATED, cycle_seconds=3.0), f.finished(1, configuration=FASTER)]
    found = not_none(recommend(spec, trials, ""))
    assert found.reference == 1
    assert "emulation" in found.baseline


def test_where_nothing_else_held_nothing_is_recommended_and_it_says_why() -> None:
    study = f.study(spec=f.study_spec(baseline=EMULATED))
    trials = [f.finished(0, configuration=EMULATED)]
    assert recommend(study.spec, trials, "") is None
    assert "emulated" in shown(end_screen(StudyReading(study, tuple(trials)), ended_by="done"))
    assert "FP8 in emulation" in report(StudyReading(study, trials))


def test_each_trial_is_labelled() -> None:
    study, trial = f.study(), ran()[2]
    assert outcome_word(trial) == "emulated"
    assert trial_json(trial, BASELINE)["emulated"] is True
    assert trial_json(ran()[1], BASELINE)["emulated"] is False
    assert "FP8 was emulated" in shown(trial_screen(trial, study))
    assert "emulated" not in shown(trial_screen(ran()[1], study))
    notes = [
        f.note("float8", layers=14, left_out=1, emulated=True),
        f.note("gradient", change="fp8", cosine=0.992, ratio=0.95, tokens=128, parameters=8),
        f.note("gradient_not_compared", why="the weights are spread over ranks"),
    ]
    screen = shown(trial_screen(trial, study, notes=notes))
    assert "14 layers in FP8, 1 left out; gradient of fp8 against bf16's: cosine 0.992, norm 0.95 times" in screen
    assert "spread over ranks" in screen
    found = recommend(SPEC, ran(), "")
    assert "`emulated`" in report(StudyReading(study, ran(), known_answer=(AnswerSource.RECOMMENDATION, found)))


def test_a_row_with_fp8_says_how_little_its_passing_means() -> None:
    trials = [
        f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]),
        f.finished(1, configuration=REAL, cycle_seconds=[4.9, 5.0, 5.1]),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert REAL in [row.configuration for row in found.rows]
    assert any("FP8 (precision) passed as not obviously broken" in note for note in found.notes)
    plain = not_none(recommend(SPEC, ran()[:2], ""))
    assert not any("FP8" in note for note in plain.notes)


def test_fp8_of_the_rollout_counts_only_where_it_acts() -> None:
    knobs = {"rollout_quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}
    assert in_fp8(f.configuration(rollout_engine="vllm", **knobs), "trl") == ("kv_cache_dtype", "rollout_quantization")
    assert in_fp8(f.configuration(rollout_engine="transformers", **knobs), "trl") == ()


def rewarded(trial: Trial, *means: float) -> Trial:
    natural = [f.cycle(20 + i, cycle_kind=CycleKind.NATURAL, reward_mean=mean) for i, mean in enumerate(means)]
    return trial.with_(cycles=(*trial.cycles, *natural))


def test_a_permitted_row_that_earns_less_is_not_recommended() -> None:
    """Twice as fast, and its completions are worth nothing: without this guard it would be the second row."""
    slow, fast = [9.9, 10.0, 10.1], [4.9, 5.0, 5.1]

    def recommended(*means: float) -> tuple[list[object], tuple[str, ...]]:
        trials = [
            rewarded(f.finished(0, cycle_seconds=slow), 0.50, 0.52),
            rewarded(f.finished(1, configuration=REAL, cycle_seconds=fast), *means),
        ]
        found = not_none(recommend(SPEC, trials, ""))
        return [row.configuration for row in found.rows], found.notes

    rows, notes = recommended(0.01, 0.02)
    assert REAL not in rows
    assert any("mean reward 0.015 against 0.510" in note for note in notes)
    assert REAL in recommended(0.40, 0.52)[0]
