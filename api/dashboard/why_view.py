"""View of findings from a study's trials: time and memory, feasibility, contributions of knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

from api.dashboard import links
from api.dashboard.answer_view import first_shares
from api.dashboard.filters import KNOB, LONGEST
from autotune.charts.chart import Chart, nowhere
from autotune.charts.feasibility_map import MOST_VALUES, Cell, Pair, feasibility_map
from autotune.charts.memory_dots import Capacity, memory
from autotune.charts.phase_bars import by_trial
from autotune.charts.predicted_peaks import PredictedPeak, predicted_peaks
from autotune.charts.scatter import memory_front
from autotune.domain import Pool, StudySpec, Trial, TrialState
from autotune.domain.differences import DERIVED
from autotune.forecast import untried_pairs
from autotune.forecast.explain import explain
from autotune.insights.why import Why, ruled_words
from autotune.recommendation.reading import StudyReading
from autotune.wording.text import clean


class WhyQuery(NamedTuple):
    """Two knobs for the map of the why page; ``settled`` fills in missing ones."""

    x: str = ""
    y: str = ""

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]]) -> WhyQuery:
        """Parses the query from the names and values of an address."""
        plain = {name: clean(value)[:LONGEST] for name, value in query if value}
        return cls(plain.get("x", ""), plain.get("y", ""))


PredictPairs = Callable[[StudySpec, Sequence[Trial], tuple[str, str]], Mapping[Pair, Cell]]
"""Predicts whether untried pairs of two knobs' values fit in memory."""
PredictPeaks = Callable[[StudySpec, Sequence[Trial]], Sequence[PredictedPeak]]
"""Predicts the memory peaks of measured trials, to compare both."""


def why_view(
    reading: StudyReading,
    query: WhyQuery,
    *,
    linked: bool = True,
    predict_pairs: PredictPairs = untried_pairs.predict_pairs,
    predict_peaks: PredictPeaks = untried_pairs.predict_peaks,
    reasons: Callable[[StudyReading], Why | None] = explain,
) -> SimpleNamespace:
    """Returns the content of the page; without links in a file that no server serves."""
    study, trials, baseline = reading.study, reading.trials, reading.study.spec.baseline
    href = links.trials_of(study.id) if linked else nowhere
    capacity = capacity_of(study.spec)
    query, shares, why = settled(reading, query), first_shares(reading), reasons(reading)
    return SimpleNamespace(
        found=reading,
        asked=query,
        phases=by_trial(trials, baseline, href),
        memory=memory(trials, baseline, capacity, href),
        fits=_fits(reading, query, linked, predict_pairs),
        front=memory_front(trials, capacity.pool, href),
        peaks=predicted_peaks(predict_peaks(study.spec, trials), capacity.pool, href),
        shares=shares,
        ruled_out=() if why is None else tuple(clean(ruled_words(ruled)) for ruled in why.ruled_out),
    )


def capacity_of(spec: StudySpec) -> Capacity:
    """Returns the pool that limits trials, with its bytes if known: GPU memory, or the process tree's memory limit."""
    if spec.resources.gpus:
        return Capacity(Pool.DEVICE, spec.resources.device_memory)
    return Capacity(Pool.HOST, spec.memory_limit)


def settled(reading: StudyReading, query: WhyQuery) -> WhyQuery:
    """Returns ``query`` with two knobs of this study for the map."""
    names = [n for n in reading.differing if n not in DERIVED] or list(reading.differing)
    by_failure = sorted(names, key=lambda n: (-_failing_values(reading.trials, n), names.index(n)))
    x = query.x if query.x in reading.differing else next((n for n in by_failure if n != query.y), "")
    y = query.y if query.y in reading.differing else next((n for n in by_failure if n != x), "")
    return WhyQuery(x, y)


def _failing_values(trials: Sequence[Trial], knob: str) -> int:
    """Ranks a knob for the map by its number of values with failures; -1 if it has too many values."""
    failed = {t.configuration.get(knob) for t in trials if t.state is TrialState.FAIL}
    every = {t.configuration.get(knob) for t in trials}
    return len(failed) if len(every) <= MOST_VALUES else -1


def _fits(reading: StudyReading, query: WhyQuery, linked: bool, predict_pairs: PredictPairs) -> Chart:
    spec, knobs = reading.study.spec, (query.x, query.y)
    known = predict_pairs(spec, reading.trials, knobs) if all(knobs) else {}

    def href(across: str, up: str) -> str:
        return links.study_page(reading.study.id, [(KNOB + knobs[0], across), (KNOB + knobs[1], up)]) + "#trials"

    return feasibility_map(reading.trials, knobs, untried_pairs.space_of(spec), known, href if linked else None)
