"""The replay of stored studies: what is foretold from what, and what counts as near a limit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration, FailureReason, Pool, Resources, Trial, TrialState
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import MemoryModel
from autotune.tables.files import read
from benchmarks import memory_model
from search_spaces.configuration import ModelFacts
from tests.support import factories
from tests.support.synthetic_table import table

pytestmark = pytest.mark.full

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"
TASK = Task(Resources(host_memory=24 * factories.GIB, model=ModelFacts(134_515_008, 30, 576, 9, 3, 49_152)), 8, 96, 256)


def configuration(rows: int, **knobs: Any) -> Configuration:
    return Configuration({"micro_batch_size": rows, "gradient_accumulation_steps": 8 // rows, **knobs})


def trial(number: int, rows: int, factor: float = 1.0, **changes: Any) -> Trial:
    """One that peaked at ``factor`` times what the formulas say."""
    peak = factor * MemoryModel.before(TASK).forecast([configuration(rows)]).peak[0]
    given = {"configuration": configuration(rows), "watchdog_peak": int(peak), **changes}
    return factories.finished(number, cycles=0, **given)


def replay(*trials: Trial) -> memory_model.Replay:
    return memory_model.Replay("study", TASK, trials, Pool.HOST)


def test_only_what_is_new_and_was_measured_is_foretold() -> None:
    failed = factories.failed(3, configuration=configuration(4))
    found = memory_model.guesses(replay(trial(0, 1), trial(1, 1), trial(2, 2), failed, trial(4, 8)))
    assert {g.k: 0 for g in found} == {0: 0, 1: 0, 3: 0}
    assert [g.k for g in found] == [0, 0, 0, 0, 1, 1, 3]
    assert all(g.error < 1e-6 for g in found if g.k == 0), "of a machine that is as the formulas say"
    assert all(0 < g.loaded < g.peak and g.error_after_load >= g.error for g in found)


def test_the_nearest_is_the_one_that_differs_least() -> None:
    one, two = trial(0, 1), trial(1, 2)
    near = trial(2, 1, configuration=configuration(1, host_allocator="keep"))
    r = replay(one, two, near)
    assert memory_model.nearest(r, near, (one, two)) == one.host_peak
    twice = trial(3, 1, 1.2)
    assert memory_model.nearest(r, near, (one, two, twice)) == pytest.approx((one.host_peak + twice.host_peak) / 2)  # type: ignore[operator]
    assert memory_model.nearest(r, near, ()) is None


def test_what_was_above_a_limit_is_told_as_a_failure() -> None:
    low, high = trial(0, 1), trial(1, 8)
    assert low.host_peak is not None
    assert high.host_peak is not None
    limit = (low.host_peak + high.host_peak) // 2
    assert memory_model.as_limited(low, low.host_peak, limit) is low
    failed = memory_model.as_limited(high, high.host_peak, limit)
    assert (failed.state, failed.host_peak, failed.fits) == (TrialState.FAIL, limit, False)
    assert failed.outcome is not None
    assert failed.outcome.reason is FailureReason.OOM


def test_verdicts_are_about_trials_near_a_limit() -> None:
    found = memory_model.verdicts(replay(trial(0, 1), trial(1, 2), trial(2, 4), trial(3, 8)))
    assert found
    assert all(0.0 <= v.said <= 1.0 for v in found)
    assert any(v.fits for v in found)
    said = ((0.95, False), (0.7, False), (0.8, True), (0.4, True))
    text = memory_model.fit_table([memory_model.Verdict(1, probability, fits) for probability, fits in said])
    half, quarter = "  50.0% ", "  25.0% "
    shares = [half, half, quarter, quarter, quarter, quarter, quarter, half]
    assert text.split("|")[2:13] == ["    4 ", "    2 ", *shares, " 100.0% "], "last: the only one above 0.9 was wrong"
    assert memory_model.FIT_HEADER.splitlines()[0].count("|") == text.count("|"), "a heading for every cell"
    edges = (0.6, 0.75, 0.9)
    assert all(f"false fit > {edge}" in memory_model.FIT_HEADER for edge in edges), "what the search asks for"


def test_the_report_has_a_line_for_every_study_and_count() -> None:
    text = memory_model.report([replay(trial(0, 1), trial(1, 2), trial(2, 4, 1.1), trial(3, 8, 0.9))])
    assert text.count("| study ") == 4  # the heading, and k = 0, 1, 3
    assert text.endswith("1 studies, 4 measured configurations, 1 orders.")


def test_a_table_is_as_many_studies_as_there_are_orders() -> None:
    made = table()
    found = memory_model.shuffled(made, 3)
    assert [r.name for r in found] == ["synthetic"] * 3
    for r in found:
        assert [t.number for t in r.trials] == list(range(len(made.rows)))
        assert r.trials[0].configuration == made.header.baseline, "as in any study"
        assert {t.configuration for t in r.trials} == {row.configuration for row in made.rows}
    assert len({tuple(t.configuration.key for t in r.trials) for r in found}) == 3
    text = memory_model.report([replace(r, trials=r.trials[:12]) for r in found])
    assert text.count("| synthetic ") == 5, "orders of one table share its lines"
    assert text.endswith("3 orders.")


@pytest.mark.parametrize("name", ["14m-tail", "14m-compiled", "14m-wide", "16m-batching", "16m-engines"])
def test_forecasts_are_about_as_wide_as_they_err_on_recorded_tables(name: str) -> None:
    orders = memory_model.shuffled(read(TABLES / f"search-cpu-{name}.jsonl.gz"), 2)
    later = [g for r in orders for g in memory_model.guesses(r) if g.k in (5, 10)]
    away = [abs(math.log(g.peak / g.predicted)) / g.spread for g in later]
    shares = {p: sum(z <= width for z in away) / len(away) for p, width in memory_model.INTERVALS.items()}
    assert 0.4 <= shares[0.5] <= 0.75
    assert 0.75 <= shares[0.8] <= 0.97
    assert shares[0.95] >= 0.93
