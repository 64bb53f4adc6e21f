"""The memory model on recorded tables, replayed trial by trial."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import memory_model
from benchmarks.recorded_tables import read

pytestmark = pytest.mark.full

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"


@pytest.mark.parametrize("name", ["14m-tail", "14m-compiled", "14m-wide", "16m-batching", "16m-engines"])
def test_forecasts_are_about_as_wide_as_they_err_on_recorded_tables(name: str) -> None:
    orders = memory_model.shuffled(read(TABLES / f"search-cpu-{name}.jsonl.gz"), 2)
    later = [g for r in orders for g in memory_model.guesses(r) if g.k in (5, 10)]
    away = [abs(math.log(g.peak / g.predicted)) / g.spread for g in later]
    shares = {p: sum(z <= width for z in away) / len(away) for p, width in memory_model.INTERVALS.items()}
    assert 0.4 <= shares[0.5] <= 0.75
    assert 0.75 <= shares[0.8] <= 0.97
    assert shares[0.95] >= 0.93
