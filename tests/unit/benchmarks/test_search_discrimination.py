"""The discrimination test on tables made to pass and to fail each criterion."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import Task, TimeForecast, TimeModel
from autotune.tables.table import RecordedTable
from benchmarks.search import discrimination, report
from benchmarks.search.discrimination import Criterion, additive_r2, criteria, random_median
from benchmarks.search.models import Known
from benchmarks.search.world import World, holds
from search_spaces.configuration import ModelFacts
from tests.support.synthetic_table import KNOBS, table

Expected = Mapping[Configuration, float]


class Times:
    """A time model that expects what it was told; ``inf`` of all else."""

    trusted = True

    def __init__(self, expected: Expected) -> None:
        self._expected = expected

    def fitted(self, task: Task, trials: Sequence[Trial]) -> TimeModel:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        logs = np.array([self._expected.get(c, math.inf) for c in configurations])
        return TimeForecast(logs, logs, {}, logs)


def verdicts(made: RecordedTable, known: Known | None = None) -> dict[str, Criterion]:
    return {c.name: c for c in criteria(World(made), known or Known())}


@pytest.fixture(scope="module")
def good() -> RecordedTable:
    return table(synthetic=False)


def blind(made: RecordedTable) -> Known:
    """A prior that knows nothing: any order."""
    chance = random.Random(1)
    return Known(times=Times({c: chance.random() for c in World(made).configurations}))


def test_a_table_made_to_discriminate_passes_all_of_it(good: RecordedTable) -> None:
    found = criteria(World(good), blind(good))
    assert discrimination.counts(found), report.judged("it", found)
    assert len(found) == 10


def test_a_synthetic_table_never_counts(good: RecordedTable) -> None:
    made = replace(good, header=replace(good.header, synthetic=True))
    found = criteria(World(made), blind(good))
    assert [c.name for c in found if not c.passed] == ["real trials"]


SMALL = {**KNOBS, "logprob_token_chunk": (256,), "logprob_rows": (1,)}


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"interaction": 0.0}, "additive model in log cycle time"),
        ({"oom_from": 0.9}, "rows that do not fit"),
        ({"phases": {"generate": 0.2, "update": 0.8}}, "largest phase"),
        ({"repeats": 2}, "the best measured again"),
        ({"top": 19}, "the best measured again"),
        ({"knobs": SMALL}, "rows within 5 % of the best"),
        ({"knobs": SMALL}, "random's median to 5 %"),
    ],
)
def test_what_a_table_lacks_is_named(changes: dict[str, Any], fails: str) -> None:
    made = table(synthetic=False, **changes)
    assert not verdicts(made)[fails].passed
    assert not discrimination.counts(criteria(World(made), blind(made)))


@pytest.mark.parametrize("facts", [ModelFacts(parameters=9_999_999, vocabulary=49_152), ModelFacts(), ModelFacts(
    parameters=10**8, vocabulary=31_999)])  # fmt: skip
def test_a_toy_model_does_not_count(good: RecordedTable, facts: ModelFacts) -> None:
    made = replace(good, header=replace(good.header, resources=replace(good.header.resources, model=facts)))
    assert not verdicts(made)["model"].passed


@pytest.mark.parametrize(("lengths", "passed"), [((16, 16, 16, 48), True), ((16, 16, 17, 18), False), ((), False)])
def test_lengths_need_a_tail(good: RecordedTable, lengths: tuple[int, ...], passed: bool) -> None:
    made = replace(good, header=replace(good.header, protocol=replace(good.header.protocol, lengths=lengths)))
    assert verdicts(made)["tail of the recorded lengths"].passed is passed


@pytest.mark.parametrize(("place", "passed"), [(0, False), (4, False), (5, True)])
def test_a_prior_that_has_the_best_among_its_first_five_is_too_good(
    good: RecordedTable, place: int, passed: bool
) -> None:
    world = World(good)
    order = [i for i in range(len(good.rows)) if i not in (world.best, world.baseline)]
    order.insert(place, world.best)
    known = Known(times=Times({world.configurations[row]: float(n) for n, row in enumerate(order)}))
    found = verdicts(good, known)["prior order alone to 5 %"]
    assert found.passed is passed
    assert found.figure == f"{place + 1} trials"


def test_without_a_time_model_nothing_is_claimed_of_the_prior(good: RecordedTable) -> None:
    found = verdicts(good)["prior order alone to 5 %"]
    assert not found.passed
    assert "not judged" in found.figure


@pytest.mark.parametrize(("rows", "good_rows"), [(639, 1), (300, 3), (100, 10), (10, 10), (7, 2)])
def test_randoms_median_is_that_of_drawing(rows: int, good_rows: int) -> None:
    chance = random.Random(0)
    firsts = sorted(min(chance.sample(range(1, rows + 1), good_rows)) for _ in range(4001))
    exact = random_median(rows, good_rows)
    assert exact is not None
    low, high = firsts[1880], firsts[2120]
    assert low <= exact <= high


def test_randoms_median_without_a_good_row() -> None:
    assert random_median(10, 0) is None


def test_an_additive_table_is_explained_whole_and_a_constant_one_too() -> None:
    made = table(interaction=0.0, noise=0.0)
    assert additive_r2(made.rows, list(KNOBS)) == pytest.approx(1.0)
    assert additive_r2(made.rows[:1], list(KNOBS)) == 1.0
    assert additive_r2(table(interaction=1.0).rows, list(KNOBS)) < 0.8


def test_the_share_of_the_baseline_is_of_the_first_row_that_holds_where_it_fails(good: RecordedTable) -> None:
    first = next(row for row in good.rows if not holds(row))
    made = replace(good, header=replace(good.header, baseline=first.configuration))
    assert "of the reference" in verdicts(made)["largest phase"].figure


def test_the_verdict_is_printed_with_each_figure(good: RecordedTable) -> None:
    said = report.judged("mine", criteria(World(good), Known()))
    assert said.startswith("mine: DOES NOT COUNT")
    assert said.count("\n") == 10
    assert said.count("FAIL") == 1
