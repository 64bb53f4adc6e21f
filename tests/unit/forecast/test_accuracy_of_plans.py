"""How far predictions were from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autotune.domain import Configuration, Trial
from autotune.forecast.accuracy import NONE, Unfitted, accuracy
from autotune.proposals.forecasts import PeakForecast, Task, TimeForecast
from autotune.recommendation.reading import StudyReading
from tests.support import factories

SECONDS = (10.0, 8.0, 6.0, 5.0, 4.0, 3.0)


class Times:
    """The measured seconds times ``factor``, in the same or the opposite order."""

    def __init__(self, factor: float, *, upside_down: bool = False) -> None:
        self.factor, self.upside_down = factor, upside_down

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Times:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        known = [SECONDS[int(c["logprob_token_chunk"])] for c in configurations]
        if self.upside_down:
            known = [1.0 / seconds for seconds in known]
        column = np.array(known) * self.factor
        return TimeForecast(np.log(column), column, {})


class Peaks:
    """Twice the factories' 2.5 GiB."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Peaks:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        column = np.full(len(configurations), 2.0 * 2.5 * factories.GIB)
        return PeakForecast(column, column, column)


def recorded(count: int) -> StudyReading:
    trials = [
        factories.finished(i, configuration=factories.configuration(logprob_token_chunk=i), cycle_seconds=SECONDS[i])
        for i in range(count)
    ]
    return StudyReading(factories.study(), [*trials, factories.failed(99)])


def models(times: Any) -> Unfitted:
    def chosen(task: Task) -> tuple[Any, Any]:
        assert task.lengths == factories.LENGTHS, "compared at the lengths that ran"
        return times, Peaks()

    return chosen


def test_half_of_the_predictions_lie_within_the_error_stated() -> None:
    found = accuracy([recorded(6)], models(Times(1.5)))
    assert found.rows == 6
    assert "half of the predicted times were within 50 %" in found.sentence
    assert "rank correlation 1.00" in found.sentence
    assert "half of the 6 peaks within 100 %" in found.sentence


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_too_high_and_too_low_count_alike(factor: float) -> None:
    assert "within 100 %" in accuracy([recorded(6)], models(Times(factor))).sentence


def test_the_wrong_order_is_told() -> None:
    found = accuracy([recorded(6)], models(Times(1.0, upside_down=True)))
    assert "rank correlation -1.00" in found.sentence


@pytest.mark.parametrize("count", [0, 4])
def test_where_there_is_too_little_it_says_that_nothing_was_compared(count: int) -> None:
    found = accuracy([recorded(count)], models(Times(1.0)))
    assert (found.sentence, found.rows) == (NONE, 0)
