"""Peaks beside what earlier trials predicted of them: nothing is predicted from itself or from what came after."""

import xml.etree.ElementTree as ET

import pytest

from autotune.charts.predicted_peaks import PredictedPeak, predicted_peaks
from autotune.domain import Pool, Trial
from autotune.forecast import untried_pairs
from autotune.forecast.untried_pairs import MOST_PEAKS, predict_peaks
from tests.support import factories as f
from tests.support.large_study import large_trials

SPEC = f.study_spec(memory_limit=16 * f.GIB)


def measured(number: int, peak: float, **knobs: int | bool | str) -> Trial:
    return f.finished(number, configuration=f.configuration(**knobs), watchdog_peak=int(peak * f.GIB))


def study(last: float = 3.0) -> list[Trial]:
    return [
        measured(0, 2.0),
        measured(1, 2.5, micro_batch_size=4),
        f.failed(2, configuration=f.configuration(micro_batch_size=16)),
        measured(3, 2.2, gradient_checkpointing=False),
        measured(4, 2.1),
        measured(5, last, micro_batch_size=8),
    ]


def test_each_configuration_is_told_once_with_what_was_known() -> None:
    found = predict_peaks(SPEC, study())
    assert [(one.number, one.known) for one in found] == [(0, 0), (1, 1), (3, 3), (5, 5)]
    for one in found:
        assert 0 < one.low < one.predicted < one.high
    assert [one.measured / f.GIB for one in found] == pytest.approx([2.0, 2.5, 2.2, 3.0])


def test_nothing_is_predicted_from_itself_or_from_what_came_after() -> None:
    whole = predict_peaks(SPEC, study())
    assert predict_peaks(SPEC, study()[:4]) == whole[:3]
    assert predict_peaks(SPEC, study()[::-1]) == whole, "by number, whatever their order"
    other = predict_peaks(SPEC, study(last=9.0))
    assert (other[:3], other[3].predicted) == (whole[:3], whole[3].predicted)


def test_what_was_measured_before_counts() -> None:
    """The same question after a study that needed far more than the formulas say, and after one that needed less."""

    def asked(peak: float) -> float:
        trials = [measured(n, peak, logprob_rows=n + 1) for n in range(4)]
        return predict_peaks(SPEC, [*trials, measured(4, 2.0, micro_batch_size=4)])[-1].predicted

    assert asked(8.0) > asked(1.0)


def test_a_large_study_takes_few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    real = untried_pairs.MemoryModel.fitted

    def fitted(model: untried_pairs.MemoryModel, task: object, trials: list[Trial]) -> untried_pairs.MemoryModel:
        fits.extend([len(trials)] if trials else ())  # one of none costs nothing
        return real(model, task, trials)  # type: ignore[arg-type]

    monkeypatch.setattr(untried_pairs.MemoryModel, "fitted", fitted)
    found = predict_peaks(f.study_spec(), large_trials(3000))
    assert len(found) == MOST_PEAKS
    assert found[-1].number > 2900
    assert len(fits) == 1
    assert max(fits) <= untried_pairs.MOST_FITTED
    fits.clear()
    predict_peaks(f.study_spec(), large_trials(60))
    assert len(fits) < 25


@pytest.mark.parametrize(("count", "share"), [(60, 0.9), (1000, 0.95), (10_000, 0.95)])
def test_intervals_hold_what_comes_on_a_machine_unlike_the_formulas(count: int, share: float) -> None:
    """All peaks are alike whatever the knobs, and every fifth trial ran out of memory nevertheless."""
    found = predict_peaks(f.study_spec(), large_trials(count))
    assert sum(one.low <= one.measured <= one.high for one in found) >= share * len(found)
    assert all(one.high < 50 * one.low for one in found), "not by saying nothing"


def test_the_chart_counts_what_came_as_predicted() -> None:
    some = [
        PredictedPeak(1, 0, 2.0 * f.GIB, 1.0 * f.GIB, 4.0 * f.GIB, 2.05 * f.GIB),
        PredictedPeak(2, 1, 2.0 * f.GIB, 1.9 * f.GIB, 2.1 * f.GIB, 3.0 * f.GIB),
        PredictedPeak(3, 2, 2.0 * f.GIB, 1e-3, 1e30, 2.5 * f.GIB),
    ]
    chart = predicted_peaks(some, Pool.HOST, lambda number: f"/t/{number}")
    assert chart.says.startswith("Of 3 peaks 1 within 5 % of what the trials before them predicted, 2 inside the 95 %")
    root = ET.fromstring(chart.drawing)  # noqa: S314 - our own
    for element in root.iter():
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
            assert -10 <= float(element.get(key, 0)) <= 900
    assert chart.drawing.count("<circle") == 3
    assert chart.rows[1][-1] == "+50.0 %"
    assert "predicted from formulas alone" in chart.drawing
    assert 'href="/t/2"' in chart.drawing


def test_before_anything_was_measured_it_says_so() -> None:
    chart = predicted_peaks(predict_peaks(SPEC, [f.failed(0)]), Pool.HOST)
    assert (chart.drawing, chart.rows) == ("", ())
    assert "measured" in chart.note
