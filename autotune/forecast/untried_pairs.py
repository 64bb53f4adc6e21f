"""Predicts pairs of knob values that no trial has, and memory peaks to compare with measured ones. For the why page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.charts.feasibility_map import Cell, Pair, pair_of
from autotune.charts.predicted_peaks import PredictedPeak
from autotune.domain import Configuration, StudySpec, Trial
from autotune.proposals.dominance import Region, covers, regions, sentence
from autotune.proposals.forecasts import PeakForecast, Task
from autotune.proposals.memory import MemoryModel, limits, pools
from autotune.statistics.distributions import NORMAL95
from autotune.wording.numbers import format_size, percent
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace

MOST_CANDIDATES = 4000
EACH_PAIR = 24
"""Most configurations of a pair that are examined."""
MOST_REGIONS = 60
MOST_FITTED = 400
"""Most trials that the memory model is fitted to, the newest: more change it little, and would delay the page."""
MOST_PEAKS = 120
"""Most measured peaks, the newest, that are compared with their predictions."""
REFITTED = 1.25
"""Factor of ended trials after which the model is fitted again: a fit after each trial would take minutes."""


def space_of(spec: StudySpec) -> Mapping[str, Sequence[KnobValue]]:
    """Returns the searched values by knob; empty for a space that this version cannot read."""
    try:
        found = SearchSpace.from_json(spec.space).values_in(spec.resources)
    except SpaceError:
        return {}
    return {name: tuple(value for value in values if value != UNSET) for name, values in found.items()}


def predict_pairs(spec: StudySpec, trials: Sequence[Trial], knobs: tuple[str, str]) -> dict[Pair, Cell]:
    """Predicts every pair of values of ``knobs`` that no trial has.

    A pair is ruled out if an OOM rules out every legal configuration that was examined. Otherwise the memory model
    predicts whether its configuration that needs least fits.
    """
    across, up = knobs
    tried = {pair_of(t, across, up) for t in trials}
    untried = {pair: some[:EACH_PAIR] for pair, some in _untried(spec, across, up, tried).items()}
    found = _distinct(regions(trials, one_memory=not spec.resources.gpus))
    ruled: dict[Pair, Cell] = {}
    for pair, configurations in untried.items():
        words = [_ruled_out(found, c) for c in configurations]
        if words and all(words):
            ruled[pair] = Cell("cell-ruled", f"ruled out: {words[0]}")
    rest = {pair: configurations for pair, configurations in untried.items() if pair not in ruled}
    return {**ruled, **_predicted(spec, trials, rest)}


def _predicted(
    spec: StudySpec, trials: Sequence[Trial], untried: Mapping[Pair, Sequence[Configuration]]
) -> dict[Pair, Cell]:
    """Predicts by the fitted memory model whether each untried pair fits; empty without a known memory limit."""
    task = Task.of(spec)
    if not untried or all(limit is None for limit in limits(task)):
        return {}
    finished = [t for t in trials if t.state.is_finished][-MOST_FITTED:]
    model = MemoryModel.before(task).fitted(task, finished)
    found = model.forecast([c for configurations in untried.values() for c in configurations])
    verdicts: dict[Pair, Cell] = {}
    first = 0
    for pair, configurations in untried.items():
        likeliest = max(range(first, first + len(configurations)), key=lambda place: float(found.fits[place]))
        verdicts[pair] = _verdict(found, likeliest, len(configurations))
        first += len(configurations)
    return verdicts


def _verdict(found: PeakForecast, place: int, looked_at: int) -> Cell:
    fits, peak = float(found.fits[place]), float(found.peak[place])
    wide = math.exp(NORMAL95 * float(found.spread[place]))
    likely = fits >= 0.5
    of = "the one configuration" if looked_at == 1 else f"the likeliest of {looked_at} configurations"
    return Cell(
        "cell-likely" if likely else "cell-unlikely",
        f"not tried; predicted {'' if likely else 'not '}to fit: {of} looked at fits with probability {percent(fits)}, "
        f"its peak is {format_size(peak)} (95 % {format_size(peak / wide)} to {format_size(peak * wide)})",
        percent(fits),
    )


def _distinct(found: Sequence[Region]) -> list[Region]:
    """Returns regions of different configurations, the first of equal ones, at most ``MOST_REGIONS``."""
    return list({(r.configuration, r.signs): r for r in reversed(found)}.values())[::-1][:MOST_REGIONS]


def _untried(spec: StudySpec, across: str, up: str, tried: set[Pair]) -> dict[Pair, list[Configuration]]:
    try:
        space = SearchSpace.from_json(spec.space)
        candidates = space.candidates(spec.baseline, spec.resources, same_learning=False, limit=MOST_CANDIDATES)
    except SpaceError:
        return {}
    found: dict[Pair, list[Configuration]] = {}
    for configuration in candidates:
        pair = (knob_value(configuration.get(across)), knob_value(configuration.get(up)))
        if pair not in tried:
            found.setdefault(pair, []).append(configuration)
    return found


def _ruled_out(found: Sequence[Region], configuration: Configuration) -> str:
    region = next((r for r in found if covers(r, configuration)), None)
    return "" if region is None else sentence(region, configuration)


def predict_peaks(spec: StudySpec, trials: Sequence[Trial]) -> tuple[PredictedPeak, ...]:
    """Predicts the peak of each measured configuration in the pool that fills first; returns both peaks.

    The measured peak is that of the configuration's first trial; the prediction uses only trials that ended before it.
    """
    task = Task.of(spec)
    pool = pools(task)[0]
    finished = [t for t in sorted(trials, key=lambda t: t.number) if t.state.is_finished]
    asked: list[tuple[int, Trial, int]] = []
    seen: set[Configuration] = set()
    for before, trial in enumerate(finished):
        measured = trial.peak(pool) if trial.fits and trial.configuration not in seen else None
        if measured:
            asked.append((before, trial, measured))
        seen.add(trial.configuration)
    found: list[PredictedPeak] = []
    for some in _by_fit(asked[-MOST_PEAKS:]):
        known = some[0][0]
        model = MemoryModel.before(task).fitted(task, finished[max(0, known - MOST_FITTED) : known])
        peaks, spreads = model.peaks([trial.configuration for _, trial, _ in some], pool)
        for (_, trial, measured), middle, spread in zip(some, peaks, spreads, strict=True):
            wide = math.exp(NORMAL95 * float(spread))
            ends = (float(middle) / wide, float(middle) * wide)
            found.append(PredictedPeak(trial.number, known, float(middle), *ends, float(measured)))
    return tuple(found)


def _by_fit(asked: Sequence[tuple[int, Trial, int]]) -> list[list[tuple[int, Trial, int]]]:
    """Splits trials into groups that one fit predicts: a fit to the trials that ended before the group's first."""
    found: list[list[tuple[int, Trial, int]]] = []
    for one in asked:
        if found and one[0] <= found[-1][0][0] * REFITTED:
            found[-1].append(one)
        else:
            found.append([one])
    return found
