from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from autotune.cli.screens.study import end_screen, plan_screen
from autotune.cli.screens.text import LABEL_WIDTH
from autotune.domain import Budget, FailureReason, Outcome, Recommendation, Study
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.wording.text import knob_value
from tests.support import factories
from tests.unit.cli.drawing import lines, text, widest

NOW = factories.NOW
FACTORY = factories.configuration()


def plan(budget: Budget | None = None, **changes: Any) -> Any:
    spent = changes.pop("spent_wall_s", 0.0)
    given = {"spec": factories.study_spec(), "legal": 1248, "same_learning": 312, "scaling": (), "workload": ""}
    return plan_screen(SimpleNamespace(**{**given, **changes}), budget or Budget(wall_s=600), NOW, spent)


def end(
    recommendation: Recommendation | None,
    trials: Any = None,
    study: Study | None = None,
    spent: float = 0.0,
    **more: Any,
) -> Any:
    arguments = {"ended_by": "the time budget holds no more" + ", and more" * 20} | more
    if trials is None:
        trials = [factories.finished(0), factories.finished(3), factories.failed(5)]
    given = (AnswerSource.RECOMMENDATION, recommendation)
    reading = StudyReading(study or factories.study(), tuple(trials), (spent, 0.0), known_answer=given)
    return end_screen(reading, **{"whole": True, **arguments})


def test_the_plan_shows_the_whole_baseline_in_eighty_columns() -> None:
    drawn = lines(plan())
    labels = [line.split()[0] for line in drawn if not line.startswith(" ")]
    assert labels == ["model", "baseline", "space", "measured", "stops"]
    assert "…" not in "".join(drawn)
    shown = " ".join(" ".join(drawn).split())
    assert all(f"{name} {knob_value(value, name)}" in shown for name, value in FACTORY.items())
    assert widest(plan()) <= 80


def test_the_plan_names_what_matters() -> None:
    drawn = text(plan(Budget(wall_s=600, max_trials=40)))
    assert "small · trl · CPU, 2 cores, memory limit 8.00 GiB" in drawn
    assert "8 rows per update; micro_batch_size 2, num_generations 4" in drawn
    assert "1,248 legal combinations; 312 of them only change speed and memory" in drawn
    assert "3 whole cycles; a 192-token batch must fit first" in drawn
    assert "(10 min; + 10 s grace) or after 40 trials" in drawn
    assert "after 1 trial " in text(plan(Budget(max_trials=1)))


def test_a_continued_study_says_what_is_used() -> None:
    assert "2 min of it used" in text(plan(spent_wall_s=120.0))


def test_the_workload_that_was_chosen_is_told_whole() -> None:
    said = "4 rows per update, completions of at most 16 tokens (chosen because the default is too large): " + "x " * 40
    drawn = plan(workload=said.strip())
    assert said.strip() in " ".join(text(drawn).split())
    assert any(line.startswith("workload") for line in lines(drawn))
    assert widest(drawn) <= 80
    assert "workload" not in text(plan())


def test_without_a_limit_the_plan_says_how_it_ends() -> None:
    assert "every legal combination has been tried, or at Ctrl-C" in text(plan(Budget()))


@given(st.text(max_size=200), st.integers(20, 80))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_plan_keeps_its_width_whatever_the_names(name: str, width: int) -> None:
    knobs = factories.configuration(attn_implementation=name, optimizer=name)
    spec = factories.study_spec(baseline=knobs, workload=factories.workload(model=name), framework=name[:20])
    drawn = lines(plan(Budget(wall_s=1e7), spec=spec, legal=10**9, same_learning=10**9), width)
    assert max(cell_len(line) for line in drawn) <= width
    assert "\x1b" not in "".join(drawn)


def test_the_end_shows_configuration_gain_evidence_and_limit() -> None:
    drawn = text(
        end(
            factories.recommendation(),
            spent=580.0,
            places={"export": "/home/x/best.yaml"},
            next_command="autotune show 3",
        )
    )
    assert "Best configuration: +40 % tokens/hour over the baseline." in drawn
    assert "micro_batch_size             2 → 4" in drawn
    assert "gradient_accumulation_steps  4 → 2" in drawn
    assert "226.0k (95 % interval 220.0k to 232.0k)" in drawn
    assert "226.0k at this policy's lengths, 180.0k at the limit" in drawn
    flat = " ".join(drawn.split())
    assert "+40 % (95 % interval +30 % to +50 %) over the baseline; confirmed in" in flat
    assert "confirmed in fresh processes, 3 A/B rounds, 9 cycles" in " ".join(drawn.split())
    assert "time        generate 50 %" in drawn
    assert "host peak 3.00 GiB, 62 % headroom" in drawn or "host peak 3.00 GiB, 63 % headroom" in drawn
    assert "the update takes 35 % of a cycle" in drawn
    assert "and more; 3 tried: 2 ok, 1 OOM, 9 min 40 s used" in flat
    assert "one trial was repeated" in drawn
    assert "/home/x/best.yaml" in drawn
    assert "autotune show 3" in drawn


def test_the_second_row_says_what_must_be_allowed() -> None:
    allowed = factories.configuration(num_generations=8, precision="bf16")
    second = factories.recommendation_row(
        title="If you allow num_generations 8 and precision bf16", configuration=allowed, gain=factories.gain(value=1.2)
    )
    drawn = text(end(factories.recommendation(rows=(factories.recommendation_row(), second))))
    first, rest = drawn.split("If you allow num_generations 8 and precision bf16")
    assert "+40 %" in first
    assert "+120 %" in rest
    assert "fp32 → bf16" in rest


def test_a_baseline_that_failed_is_told_honestly() -> None:
    found = factories.recommendation(baseline=factories.oom().sentence(), reference=3)
    drawn = " ".join(text(end(found)).split())
    assert "baseline OOM in update (host memory): the process tree reached" in drawn
    assert "+40 % over reference #3" in drawn
    assert "over the baseline" not in drawn


def test_a_failed_baseline_with_only_the_reference_left() -> None:
    row = factories.recommendation_row(gain=None)
    drawn = text(end(factories.recommendation(rows=(row,), baseline="OOM in update", reference=3)))
    assert "Your baseline failed; this is the first configuration that fits." in drawn


def test_nothing_beats_the_baseline() -> None:
    row = factories.recommendation_row(configuration=factories.configuration(), gain=None, changes=())
    drawn = text(end(factories.recommendation(rows=(row,)), [factories.finished(0)], next_command="export"))
    assert ("next        the same command with a larger --budget" in drawn, "export" in drawn) == (True, False)
    assert "Nothing is proven to beat your baseline" in drawn
    assert ("ok, and kept" in drawn, "→" in drawn) == (True, False)


def test_an_unconfirmed_best_does_not_claim_to_be_confirmed() -> None:
    row = factories.recommendation_row(confirmed=False, gain=factories.gain(pairs=0))
    drawn = text(end(factories.recommendation(rows=(row,))))
    assert "not confirmed" in drawn
    assert "confirmed in fresh processes" not in drawn


def test_a_worst_case_that_failed_is_loud() -> None:
    drawn = text(end(factories.recommendation(rows=(factories.recommendation_row(worst_case_passed=False),))))
    assert "NOT passed" in drawn


@pytest.mark.parametrize("found", [None, factories.recommendation(rows=())])
def test_no_feasible_configuration_gives_the_causes_most_frequent_first(found: Any) -> None:
    crash = Outcome(reason=FailureReason.CRASH, message="exit code 1")
    trials = [factories.failed(0, crash), factories.failed(1), factories.failed(2)]
    drawn = " ".join(text(end(found, trials)).split())
    assert "No configuration was feasible." in drawn
    assert drawn.index("(2 of 3 failures)") < drawn.index("(1 of 3 failures)")
    assert "hint try micro_batch_size 1" in drawn


def test_nothing_at_all_ran() -> None:
    drawn = text(end(None, []))
    assert "0 tried: 0 ok" in drawn
    assert "Nothing has been measured yet." in drawn


def test_a_baseline_the_budget_broke_off_has_not_failed() -> None:
    drawn = " ".join(text(end(None, [factories.broken_off(0)])).split())
    assert "Nothing was measured: the budget ended before a trial did." in drawn
    assert "feasible" not in drawn


def test_of_a_baseline_without_a_figure_no_screen_says_that_it_failed_or_that_it_is_ok() -> None:
    row = factories.recommendation_row(gain=None)
    found = factories.recommendation(rows=(row,), baseline="not measured yet", reference=3)
    drawn = " ".join(text(end(found)).split())
    assert "Your baseline was not measured; this is the first configuration that fits." in drawn
    assert "baseline not measured" in drawn
    assert "failed" not in drawn
    assert "ok;" not in drawn


@given(st.text(max_size=150), st.integers(12, 80), st.floats(allow_nan=True))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_end_never_breaks_a_narrow_terminal(word: str, width: int, number: Any) -> None:
    row = factories.recommendation_row(
        limit=word, title=word, tokens_per_hour=number, phase_shares={word: number, "update": 0.5},
        configuration=factories.configuration(optimizer=word), gain=factories.gain(value=number),
    )  # fmt: skip
    found = factories.recommendation(rows=(row, replace(row, headroom=None)), baseline=word, notes=(word,))
    screen = end(found, places={word: word}, next_command=word)
    assert widest(screen, width) <= width
    assert "\x1b" not in text(screen, width)


def test_a_published_baseline_and_its_scaling_are_told_whole() -> None:
    sentences = (
        "openr1:demo is from a recipe with a very long name, told by its repository, commit and file.",
        "Kept.",
    )
    drawn = lines(plan(scaling=sentences))
    first = next(place for place, line in enumerate(drawn) if line.startswith("published"))
    joined = " ".join(line[LABEL_WIDTH:].strip() for line in drawn[first:])
    assert joined == " ".join(sentences)
