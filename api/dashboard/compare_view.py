"""View of two to six trials, or of two studies: only their differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from api.dashboard import links
from api.dashboard.trial_view import best_of
from api.dashboard.trials_view import name_of
from api.dashboard.why_view import capacity_of
from autotune.charts.chart import nowhere
from autotune.charts.memory_dots import by_phase
from autotune.charts.phase_bars import Bar, ordered, stacked
from autotune.domain import Trial
from autotune.recommendation.comparison import Comparison, compare_studies, compare_trials, verdict
from autotune.recommendation.comparison_words import FigureLine, baselines_words, figure_lines
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import known_size
from autotune.wording.text import clean, differing, knob_value

LEAST, MOST = 2, 6


def _view(reading: StudyReading | None, problem: str = "", **more: Any) -> SimpleNamespace:
    """Returns the values of the page; ``problem`` is the reason why there is no comparison."""
    nothing = {"verdicts": (), "differs": (), "columns": (), "figures": (), "numbers": ()}
    return SimpleNamespace(found=reading, problem=problem, **{**nothing, **more})


def numbers_of(query: Iterable[tuple[str, str]], name: str = "trial") -> tuple[int, ...]:
    """Returns the distinct numbers in an address's parameters ``name``, at most ``MOST`` + 1; ignores other text."""
    found = [int(v) for n, v in query if n == name and v.isascii() and v.isdecimal() and len(v) < 10]
    return tuple(dict.fromkeys(found))[: MOST + 1]


def compare_view(reading: StudyReading, numbers: Sequence[int]) -> SimpleNamespace:
    """Compares the trials of ``numbers``, by default baseline and answer, of a round if one had both; names unknown."""
    best = best_of(reading)
    others = [t.number for t in (*([] if best is None else [best]), *reading.best_first) if t.number and t.feasible]
    rounds = {t.configuration: t.number for t in reading.trials if t.pair is not None and t.feasible}
    wanted = {reading.reference, best and best.configuration}
    both = [rounds[side] for side in sorted(rounds.keys() & wanted, key=lambda side: side != reading.reference)]
    numbers = numbers or (both if len(both) == LEAST else [0, *others[:1]][: 2 * len(others)])
    by_number = {t.number: t for t in reading.trials}
    unknown = [f"#{n}" for n in numbers if n not in by_number]
    if unknown:
        return _view(reading, f"There is no trial {', '.join(unknown)} in this study.")
    if not LEAST <= len(numbers) <= MOST:
        return _view(reading, f"Choose {LEAST} to {MOST} trials.")
    trials = [by_number[n] for n in numbers]
    rests = [[n for n in numbers if n != number] for number in numbers]
    values = _compared([compare_trials(reading, trials[0], t) for t in trials[1:]])
    figures = FigureLine(f"vs {reading.reference_word}", tuple(map(reading.gain_words, trials))), *values["figures"]
    values |= {"figures": _unequal([*figures, *_peaks(reading, trials)])}
    study = reading.study.id
    without = [links.compare_page(study, rest) if len(rest) >= LEAST else "" for rest in rests]
    columns = ((f"#{n}", links.trial_page(study, n), rest) for n, rest in zip(numbers, without, strict=True))
    return _view(reading, columns=tuple(columns), numbers=tuple(numbers), **values)


def compare_studies_view(pair: Sequence[StudyReading]) -> SimpleNamespace:
    """Compares the recommendations of two studies, as ``autotune compare STUDY STUDY`` does."""
    if len(pair) != LEAST:
        return _view(None, "Choose two studies.")
    found = compare_studies(*pair)
    base = () if found.baselines is None else (baselines_words(*found.baselines),)
    return _view(
        None,
        differs=(*found.differs, *base) if found.differs else (),
        columns=tuple((name_of(one), links.study_page(one.study.id), "") for one in pair),
        **_compared([found]),
    )


def _compared(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    sides = (comparisons[0].a, *(each.b for each in comparisons))
    configurations = [side.configuration for side in sides]
    names = differing(configurations)
    lines = figure_lines(sides, comparisons[0].ratio if len(comparisons) == 1 else None)
    bars = [Bar(f"{side.label:.16}", side.phases) for side in sides if side.phases]
    values = [FigureLine(clean(n), tuple(knob_value(c.get(n), n) for c in configurations)) for n in names]
    return {
        "verdicts": tuple(map(verdict, comparisons)),
        "knobs": tuple(values),
        "figures": _unequal(lines),
        "alike": len({name for c in configurations for name in c}) - len(names),
        "phases": stacked("phases", "Seconds of a cycle, by phase", bars, nowhere, "") if bars else None,
    }


def _unequal(lines: Iterable[FigureLine]) -> tuple[FigureLine, ...]:
    return tuple(line for line in lines if len(set(line.values)) > 1)


def _peaks(reading: StudyReading, trials: Sequence[Trial]) -> list[FigureLine]:
    """Returns each phase's peak in the memory pool that fills first: the GPU's, else the host's."""
    peaks = [by_phase(t, capacity_of(reading.study.spec).pool) for t in trials]
    names = ordered(name for peak in peaks for name in peak)
    return [FigureLine(f"peak in {name}", tuple(known_size(peak.get(name)) for peak in peaks)) for name in names]
