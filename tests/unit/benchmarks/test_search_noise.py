"""How well a table knows its rows, on tables whose noise was made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import Trial
from autotune.tables.table import RecordedTable, TableRow
from benchmarks.search.noise import noise_of, sentence
from benchmarks.search.world import World
from tests.support.synthetic_table import table


def slower(trial: Trial, factor: float) -> Trial:
    return trial.with_(cycles=tuple(replace(c, seconds=c.seconds * factor) for c in trial.cycles))


def drifting(made: RecordedTable, factors: tuple[float, ...]) -> RecordedTable:
    """The same, each round of repeats ``factor`` times as slow."""

    def row(one: TableRow) -> TableRow:
        return replace(one, repeats=tuple(slower(r, f) for r, f in zip(one.repeats, factors, strict=bool(one.repeats))))

    return replace(made, rows=tuple(row(one) for one in made.rows))


def test_the_scatter_of_runs_is_found_again() -> None:
    quiet, loud = (noise_of(World(table(noise=noise))) for noise in (0.004, 0.08))
    assert quiet is not None
    assert loud is not None
    assert 5 < loud.run / quiet.run < 80
    assert loud.judged_by == 2
    assert loud.repeated == pytest.approx(loud.run / 2**0.5)


def test_a_machine_that_gets_slower_is_no_scatter_of_runs() -> None:
    made = table()
    steady, drifted = noise_of(World(made)), noise_of(World(drifting(made, (1.0, 1.1, 1.2))))
    assert steady is not None
    assert drifted is not None
    assert drifted.run == pytest.approx(steady.run)
    assert drifted.widest == pytest.approx(0.182, abs=0.01)
    assert steady.single < 0.02 < drifted.round < drifted.single
    assert "the fastest round of repeats was 2" in sentence(drifted)


def test_first_runs_are_left_out_for_the_fastest_were_picked_by_them() -> None:
    made = table()
    lucky = replace(made, rows=tuple(replace(r, trial=slower(r.trial, 0.8)) for r in made.rows))
    assert noise_of(World(lucky)) == noise_of(World(made))


@pytest.mark.parametrize("repeats", [0, 1])
def test_without_rounds_to_compare_nothing_is_said(repeats: int) -> None:
    found = noise_of(World(table(repeats=repeats)))
    assert found is None
    assert "not known" in sentence(found)
