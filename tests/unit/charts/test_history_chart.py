"""The history: steps that only go up, marks that do not grow with the study, nothing without a place."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.charts.chart import Chart
from autotune.charts.history import LEGEND, MOST_MARKS, history, steps
from autotune.domain import Trial, TrialState
from tests.support import factories as f
from tests.support.large_study import large_trials
from tests.support.properties import examples

SPEC = f.study_spec()


def numbers_in(chart: Chart) -> list[float]:
    """Every coordinate of the drawing."""
    found = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy)="([^"]+)"', chart.drawing)
    return [float(value) for value in found]


def trial_of(number: int, seconds: float, **changes: Any) -> Trial:
    """One of the baseline's learning that no other is like."""
    return f.finished(number, cycle_seconds=seconds, configuration=f.numbered(number), **changes)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=12))
def test_the_best_so_far_only_rises_and_ends_at_the_fastest(seconds: list[float]) -> None:
    trials = [trial_of(n, s) for n, s in enumerate(seconds)]
    found = steps(trials, SPEC)
    speeds = [s.tokens_per_hour for s in found]
    assert speeds == sorted(set(speeds))
    assert speeds[-1] == max(t.tokens_per_hour or 0.0 for t in trials)
    assert found[0].number == 0


def test_failures_emulations_and_other_learning_are_no_steps() -> None:
    trials = [
        trial_of(0, 10.0),
        f.failed(1),
        trial_of(2, 1.0).with_(worst_case_passed=False),
        trial_of(3, 2.0).with_(configuration=f.configuration(num_generations=8)),
        f.stopped(4, at_most=1e9),
        trial_of(5, 9.0),
    ]
    assert [s.number for s in steps(trials, SPEC)] == [0, 5]


def test_each_trial_has_a_mark_that_says_what_it_was_and_leads_there() -> None:
    trials = [trial_of(0, 10.0), f.failed(1), f.stopped(2), f.trial(3, state=TrialState.RUNNING), f.trial(4)]
    chart = history(trials, SPEC, lambda n: f"/t/{n}")
    assert re.findall(r'href="/t/(\d)"', chart.drawing) == ["0", "1", "2", "3"]
    assert "#1 search: OOM" in chart.drawing
    assert "#2 search: ≤ 171.2k tokens/hour, stopped" in chart.drawing
    assert "#3 search: running" in chart.drawing
    assert {m.style for m in chart.legend} >= {"ok", "bad", "bound", "now", "best"}
    kinds = ("ok", "bad", "bound", "now", "other")
    assert len({m.glyph for m in LEGEND if m.style in kinds}) == len(kinds), "not told apart by colour alone"


def test_ten_thousand_trials_draw_no_more_than_three_hundred() -> None:
    few = history([trial_of(n, 10.0 + n % 7) for n in range(MOST_MARKS)], SPEC, lambda n: f"/studies/1/trials/{n}")
    large = history(large_trials(), SPEC, lambda n: f"/studies/1/trials/{n}")
    assert large.drawing.count('class="mark"') <= MOST_MARKS
    assert len(large.drawing) <= 2 * len(few.drawing)
    assert "#9996 to #9999" not in large.drawing or "failed" in large.drawing
    assert sum(int(n) for n in re.findall(r"(\d+) failed</title>", large.drawing)) == 1999


SOME = st.builds(
    lambda n, state, seconds, cycles, passed: f.trial(
        n,
        state=state,
        cycles=tuple(f.cycle(i, seconds=seconds) for i in range(cycles)),
        worst_case_passed=passed,
        outcome=f.oom() if state is TrialState.FAIL else None,
    ),
    st.integers(0, 400),
    st.sampled_from(list(TrialState)),
    st.floats(1e-6, 1e9),
    st.integers(0, 2),
    st.booleans(),
)


@examples(25, 60)
@given(st.lists(SOME, max_size=6, unique_by=lambda t: t.number))
def test_whatever_the_trials_are_everything_lies_inside(trials: list[Trial]) -> None:
    chart = history(trials, SPEC)
    assert "nan" not in chart.drawing
    assert all(-10 <= value <= 870 for value in numbers_in(chart))


def test_without_trials_it_says_so() -> None:
    assert history([], SPEC).note == "No trial has been started."
    assert [history(made, SPEC).drawing for made in ([], [f.trial(0, state=TrialState.RUNNING)])] == ["", ""]


@pytest.mark.parametrize("name", ["says", "drawing"])
def test_a_hostile_source_is_not_in_it(name: str) -> None:
    trials = [trial_of(0, 10.0, source="<script>"), f.failed(1, f.oom(message="<script>", phase="<script>"))]
    assert "<script>" not in getattr(history(trials, SPEC), name)
