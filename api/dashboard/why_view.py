"""What the trials of a study say: where time and memory go, what fits, which knobs matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.dashboard import links
from api.dashboard.filters import KNOB, LONGEST
from autotune.charts.chart import Chart, Href, nowhere
from autotune.charts.feasibility_map import MOST_VALUES, Cell, Pair, feasibility_map
from autotune.charts.memory_dots import Capacity, memory
from autotune.charts.parallel import MOST_AXES, SPEED, can_be_log, parallel
from autotune.charts.phase_bars import by_trial
from autotune.charts.predicted_peaks import PredictedPeak, predicted_peaks
from autotune.charts.scatter import Forecast, memory_front, predicted, teaching_front
from autotune.charts.share_bars import importance_chart, useful_share
from autotune.domain import Pool, StudySpec, Trial, TrialState
from autotune.domain.differences import DERIVED
from autotune.forecast import untried_pairs
from autotune.insights.importance import importance
from autotune.recommendation.reading import StudyReading
from autotune.report.verified import verdict_of
from autotune.verify import long_run
from autotune.wording.text import clean

AGAINST = {"memory": "peak memory", "groups": "share of groups that teach"}
DEFAULT_AXES = 8
MOST_LONG_RUNS = 20


@dataclass(frozen=True)
class WhyQuery:
    """What an address asks for; what it does not name is chosen by ``settled``."""

    x: str = ""
    y: str = ""
    axes: tuple[str, ...] = ()
    logs: frozenset[str] = frozenset()
    against: str = "memory"

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]]) -> WhyQuery:
        """From names and values as they stand in an address."""
        given = [(name, clean(value)[:LONGEST]) for name, value in query if value]
        plain = dict(given)
        return cls(
            x=plain.get("x", ""),
            y=plain.get("y", ""),
            axes=tuple(dict.fromkeys(v for n, v in given if n == "axis"))[:MOST_AXES],
            logs=frozenset(v for n, v in given if n == "log"),
            against=plain["against"] if plain.get("against") in AGAINST else "memory",
        )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """As an address has it; asking the same is the same."""
        axes, logs = [("axis", name) for name in self.axes], [("log", name) for name in sorted(self.logs)]
        return (("x", self.x), ("y", self.y), *axes, *logs, ("against", self.against))


@dataclass(frozen=True)
class AxisChoice:
    """An axis of the parallel coordinates in its form."""

    name: str
    shown: bool
    log: bool
    can_be_log: bool


@dataclass(frozen=True)
class WhyView:
    """The whole page."""

    found: StudyReading
    asked: WhyQuery
    axes: tuple[AxisChoice, ...]
    against: tuple[tuple[str, str], ...]
    phases: Chart
    memory: Chart
    fits: Chart
    parallel: Chart
    importance: Chart
    front: Chart
    predicted: Chart
    peaks: Chart
    useful: Chart


PredictPairs = Callable[[StudySpec, Sequence[Trial], tuple[str, str]], Mapping[Pair, Cell]]
"""What is known of pairs of two knobs' values nobody tried."""
PredictPeaks = Callable[[StudySpec, Sequence[Trial]], Sequence[PredictedPeak]]
"""What was predicted of the peaks that were measured."""


def why_view(
    found: StudyReading,
    asked: WhyQuery,
    *,
    linked: bool = True,
    predict_pairs: PredictPairs = untried_pairs.predict_pairs,
    predict_peaks: PredictPeaks = untried_pairs.predict_peaks,
) -> WhyView:
    """Everything the page shows; without links where there is no server to follow them to."""
    study, trials, baseline = found.study, found.trials, found.study.spec.baseline
    href = links.trials_of(study.id) if linked else nowhere
    capacity = capacity_of(study.spec)
    asked = settled(found, asked)
    names = tuple(n for n in found.differing if n in asked.axes)
    return WhyView(
        found=found,
        asked=asked,
        axes=_axes(found, asked),
        against=tuple(AGAINST.items()),
        phases=by_trial(trials, baseline, href),
        memory=memory(trials, baseline, capacity, href),
        fits=_fits(found, asked, linked, predict_pairs),
        parallel=parallel(trials, names, asked.logs, href),
        importance=importance_chart(importance(trials)),
        front=_front(found, asked, href),
        predicted=predicted(forecasts(found), href),
        peaks=predicted_peaks(predict_peaks(study.spec, trials), capacity.pool, href),
        useful=useful_share(trials, baseline, href),
    )


def capacity_of(spec: StudySpec) -> Capacity:
    """The pool that fills first, as far as that is known: the GPU's memory, or the limit of the process tree."""
    if spec.resources.gpus:
        return Capacity(Pool.DEVICE, spec.resources.device_memory)
    return Capacity(Pool.HOST, spec.memory_limit)


def settled(found: StudyReading, asked: WhyQuery) -> WhyQuery:
    """``asked`` with knobs of this study: the two the map is about, and the axes."""
    names = [n for n in found.differing if n not in DERIVED] or list(found.differing)
    by_failure = sorted(names, key=lambda n: (-_failing_values(found.trials, n), names.index(n)))
    x = asked.x if asked.x in found.differing else next((n for n in by_failure if n != asked.y), "")
    y = asked.y if asked.y in found.differing else next((n for n in by_failure if n != x), "")
    axes = tuple(n for n in asked.axes if n in found.differing) or tuple(names[:DEFAULT_AXES])
    return WhyQuery(x, y, axes, asked.logs, asked.against)


def _failing_values(trials: Sequence[Trial], knob: str) -> int:
    """How many values of a knob some trial failed with: the map of such knobs tells most. 0 of too many values."""
    failed = {t.configuration.get(knob) for t in trials if t.state is TrialState.FAIL}
    every = {t.configuration.get(knob) for t in trials}
    return len(failed) + len(every) if len(every) <= MOST_VALUES else 0


def _axes(found: StudyReading, asked: WhyQuery) -> tuple[AxisChoice, ...]:
    knobs = [AxisChoice(n, n in asked.axes, n in asked.logs, can_be_log(n, found.trials)) for n in found.differing]
    return (*knobs, AxisChoice(SPEED, True, SPEED in asked.logs, True))


def _fits(found: StudyReading, asked: WhyQuery, linked: bool, predict_pairs: PredictPairs) -> Chart:
    spec, knobs = found.study.spec, (asked.x, asked.y)
    known = predict_pairs(spec, found.trials, knobs) if all(knobs) else {}

    def href(across: str, up: str) -> str:
        return links.study_page(found.study.id, [(KNOB + knobs[0], across), (KNOB + knobs[1], up)]) + "#trials"

    return feasibility_map(found.trials, knobs, untried_pairs.space_of(spec), known, href if linked else None)


def _front(found: StudyReading, asked: WhyQuery, href: Href) -> Chart:
    if asked.against == "groups":
        return teaching_front(found.trials, href)
    return memory_front(found.trials, capacity_of(found.study.spec).pool, href)


def forecasts(found: StudyReading) -> tuple[Forecast, ...]:
    """Long runs at natural lengths against what the study's cycles predicted for them."""
    runs = [t for t in found.trials if long_run.is_long(t) and t.state is TrialState.COMPLETE][-MOST_LONG_RUNS:]
    verdicts = [(t.number, verdict_of(found.study, found.trials, t)) for t in runs]
    return tuple(
        Forecast(number, v.predicted, v.measured, f"a long run; {clean(v.rests_on)}")
        for number, v in verdicts
        if v is not None
    )
