"""Phases, memory, what fits, knobs, shares and fronts: true to the trials, bounded, and harmless."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from autotune.charts import Chart
from autotune.charts.feasibility_map import MOST_VALUES, Cell, feasibility_map
from autotune.charts.memory_dots import Capacity, by_phase, memory
from autotune.charts.phase_bars import MOST_CYCLES, by_cycle, by_trial
from autotune.charts.scatter import MOST_POINTS, memory_front
from autotune.domain import CycleKind, FailureReason, Pool, Trial
from autotune.insights.ranking import SHOWN, chosen
from tests.support import factories as f
from tests.support.large_study import large_trials

EVIL = "<script>alert('&\"x')</script>"
BASE = f.configuration()
HOST = Capacity(Pool.HOST, 8 * f.GIB)


def tried(number: int, seconds: float = 10.0, **knobs: Any) -> Trial:
    return f.finished(number, cycle_seconds=seconds, configuration=f.configuration(**knobs))


def oom(number: int, **knobs: Any) -> Trial:
    return f.failed(number, configuration=f.configuration(**knobs))


def study() -> list[Trial]:
    """A baseline, faster ones, an OOM, a crash."""
    return [
        tried(0),
        tried(1, 5.0, micro_batch_size=4),
        tried(2, 8.0, gradient_checkpointing=False),
        oom(3, micro_batch_size=8, gradient_checkpointing=False),
        f.failed(4, f.failure(FailureReason.CRASH), configuration=f.configuration(micro_batch_size=1)),
        tried(5, 6.0, micro_batch_size=4, gradient_checkpointing=False),
    ]


def all_of(trials: list[Trial]) -> list[Chart]:
    knobs = ("micro_batch_size", "gradient_checkpointing")
    return [
        by_trial(trials, BASE),
        by_cycle(trials[0]),
        memory(trials, BASE, HOST),
        feasibility_map(trials, knobs, {}, {}),
        memory_front(trials, Pool.HOST),
    ]


def test_every_chart_is_whole_svg_with_its_words_and_a_table() -> None:
    trials = study()
    natural = f.cycle(9, cycle_kind=CycleKind.NATURAL, groups=40, zero_std_groups=10)
    trials[0] = trials[0].with_(cycles=(*trials[0].cycles, natural))
    for chart in all_of(trials):
        root = ET.fromstring(chart.drawing)  # noqa: S314 - our own
        assert root.get("aria-label") == chart.says
        assert chart.says.endswith(".")
        assert chart.rows, chart.name
        assert all(len(row) == len(chart.heads) for row in chart.rows), chart.name
        assert " style=" not in chart.drawing
        for element in root.iter():
            for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
                assert -10 <= float(element.get(key, 0)) <= 900, chart.name
            assert float(element.get("width", 1)) >= 0


def test_nothing_foreign_acts() -> None:
    phases = {"update": 5.0, EVIL: 5.0}
    peaks = {EVIL: f.peaks(), "update": f.peaks()}
    evil = tried(0).with_(cycles=(f.cycle(phases=phases, peaks=peaks),))
    trials = [
        evil,
        tried(1, 5.0, attn_implementation=EVIL, **{EVIL: 3}),
        f.failed(2, f.oom(message=EVIL, phase=EVIL), configuration=f.configuration(attn_implementation="b")),
    ]
    charts = [*all_of(trials), feasibility_map(trials, ("attn_implementation", EVIL), {}, {})]
    for chart in charts:
        assert "<script" not in chart.drawing
        if chart.drawing:
            ET.fromstring(chart.drawing)  # noqa: S314 - our own


def test_the_reference_comes_first_and_each_configuration_once() -> None:
    trials = [*study(), f.finished(6, cycle_seconds=5.1, configuration=f.configuration(micro_batch_size=4))]
    found = chosen(trials, BASE)
    assert [t.number for t in found] == [0, 1, 5, 2]
    many = [tried(n, 10.0 + n, logprob_token_chunk=n + 1) for n in range(50)]
    assert len(chosen(many, BASE)) == SHOWN


def test_phases_of_a_bar_are_the_seconds_of_its_cycles() -> None:
    chart = by_trial(study(), BASE)
    assert chart.heads[:2] == ("", "whole")
    assert [row[0] for row in chart.rows] == ["#0 baseline", "#1", "#5", "#2"]
    for row in chart.rows:
        assert sum(float(cell) for cell in row[2:]) == pytest.approx(float(row[1].split()[0]), abs=0.06)


def test_discarded_cycles_are_faint_and_long_trials_are_cut() -> None:
    trial = tried(0).with_(cycles=tuple(f.cycle(i, accepted=i != 1) for i in range(MOST_CYCLES + 5)))
    chart = by_cycle(trial)
    assert chart.drawing.count("faint") == len(f.SHARES)
    assert len(chart.rows) == MOST_CYCLES
    assert f"Of {MOST_CYCLES + 5} cycles" in chart.note


def test_memory_is_by_phase_and_under_its_limit() -> None:
    assert by_phase(tried(0), Pool.HOST) == {"generate": 3 * f.GIB // 2, "update": 2 * f.GIB}
    chart = memory(study(), BASE, HOST)
    assert [row[0] for row in chart.rows][-1] == "#3 (failed)", "what ran out is shown beside what did not"
    assert 'class="capacity"' in chart.drawing
    assert 'class="capacity"' not in memory(study(), BASE, Capacity(Pool.HOST, None)).drawing
    assert memory(study(), BASE, Capacity(Pool.DEVICE, None)).drawing == ""


def test_the_map_tells_what_became_of_each_pair() -> None:
    known = {("8", "on"): Cell("cell-ruled", "ruled out: trial 3"), ("4", "on"): Cell("cell-ruled", "wrong")}
    listed = {"micro_batch_size": [1, 2, 4, 8, 16]}
    chart = feasibility_map(
        study(), ("micro_batch_size", "gradient_checkpointing"), listed, known, lambda x, y: f"/?x={x}&y={y}"
    )
    cells_by_pair = {(y, x): words for y, *cells in chart.rows for x, words in zip(chart.heads[1:], cells, strict=True)}
    assert chart.heads[1:] == ("1", "2", "4", "8", "16"), "numbers by size, not by their letters"
    assert cells_by_pair["off", "8"] == "1 OOM in update (host)"
    assert cells_by_pair["on", "1"] == "1 CRASH"
    assert cells_by_pair["on", "4"].startswith("1 of 1 fit, best ")
    assert cells_by_pair["on", "8"] == "ruled out: trial 3"
    assert cells_by_pair["off", "16"] == "not tried"
    assert len(cells_by_pair) == 10
    assert "/?x=8&amp;y=off" in chart.drawing
    assert "/?x=16" not in chart.drawing, "nothing to list"


def test_a_pair_that_fitted_and_failed_is_neither() -> None:
    trials = [*study(), oom(6, micro_batch_size=4, logprob_rows=8)]
    chart = feasibility_map(trials, ("micro_batch_size", "gradient_checkpointing"), {}, {})
    cells_by_pair = {(y, x): words for y, *cells in chart.rows for x, words in zip(chart.heads[1:], cells, strict=True)}
    assert re.fullmatch(r"1 of 2 fit, best \S+ tokens/hour; 1 OOM in update \(host\)", cells_by_pair["on", "4"])
    assert "cell-mixed" in chart.drawing


def test_what_says_nothing_of_a_configuration_is_not_in_the_map() -> None:
    trials = [tried(0), f.failed(1, f.failure(FailureReason.INFRA), configuration=f.configuration(micro_batch_size=4))]
    chart = feasibility_map(trials, ("micro_batch_size", "gradient_checkpointing"), {}, {})
    assert "INFRA" not in str(chart.rows)


def test_many_values_are_cut_and_one_knob_is_no_map() -> None:
    trials = [tried(n, logprob_token_chunk=n + 1) for n in range(40)]
    chart = feasibility_map(trials, ("logprob_token_chunk", "precision"), {}, {})
    assert len(chart.heads) == MOST_VALUES + 1
    assert feasibility_map(trials, ("precision", "precision"), {}, {}).drawing == ""


def test_ten_thousand_trials_do_not_grow_the_charts() -> None:
    trials = large_trials()
    front = memory_front(trials, Pool.HOST)
    assert front.drawing.count("<circle") <= MOST_POINTS + len(front.rows)
    every = [front, by_trial(trials, BASE), memory(trials, BASE, HOST)]
    every.append(feasibility_map(trials, ("x", "y"), {}, {}))
    assert sum(len(chart.drawing) for chart in every) < 200_000


EMPTY: list[Callable[[], Chart]] = [
    lambda: by_trial([], BASE),
    lambda: by_cycle(f.trial(0)),
    lambda: memory([], BASE, HOST),
    lambda: feasibility_map([], ("a", "b"), {}, {}),
    lambda: memory_front([], Pool.HOST),
]


@pytest.mark.parametrize("make", EMPTY)
def test_without_trials_each_says_why_it_is_empty(make: Callable[[], Chart]) -> None:
    chart = make()
    assert chart.drawing == ""
    assert len(chart.note) > 10
    assert chart.rows == ()
