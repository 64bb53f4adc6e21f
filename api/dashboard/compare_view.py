"""View of two to six trials: only their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from api.dashboard import links
from api.dashboard.trial_view import best_of
from api.dashboard.why_view import capacity_of
from autotune.charts.chart import Chart
from autotune.charts.memory_dots import by_phase
from autotune.charts.phase_bars import Bar, mean_phases, ordered, stacked
from autotune.domain import Trial
from autotune.insights.standings import outcome_word
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import energy_words
from autotune.recommendation.comparison import compare_trials, verdict
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import format_duration, known_size, percent
from autotune.wording.sentences import measured_words
from autotune.wording.text import clean, differing, knob_value

LEAST, MOST, MOST_CHOICES = 2, 6, 60

Line = tuple[str, tuple[str, ...]]
"""Name of a property in which the trials differ, and its value in each."""


@dataclass(frozen=True)
class CompareView:
    """Content of the comparison page."""

    found: StudyReading
    problem: str
    """Reason why nothing is compared; empty if trials are compared."""
    verdicts: tuple[str, ...]
    """Gain of each further trial over the first, in words."""
    columns: tuple[tuple[Trial, str], ...]
    """Trials, each with the address of the comparison without it; empty if too few would remain."""
    knobs: tuple[Line, ...]
    figures: tuple[Line, ...]
    alike: int
    """Number of knobs that are equal in all trials."""
    phases: Chart | None
    choices: tuple[tuple[int, str, bool], ...]
    """Trials to choose from: number, words, and whether it is compared."""


def trial_numbers(query: Iterable[tuple[str, str]]) -> tuple[int, ...]:
    """Returns the trial numbers in an address, each once; ignores other values and numbers beyond ``MOST`` + 1."""
    found = [int(v) for n, v in query if n == "trial" and v.isascii() and v.isdecimal() and len(v) < 10]
    return tuple(dict.fromkeys(found))[: MOST + 1]


def compare_view(reading: StudyReading, numbers: Sequence[int]) -> CompareView:
    """Compares the trials of ``numbers``, by default baseline and answer; names unknown numbers as the problem."""
    best = best_of(reading)
    numbers = numbers or ([0, best.number] if best is not None and best.number else [])
    by_number = {t.number: t for t in reading.trials}
    trials = [by_number[n] for n in numbers if n in by_number]
    problem = _problem(numbers, by_number)
    shown = [] if problem else trials
    names = differing(t.configuration for t in shown)
    every = {n for t in shown for n in t.configuration}
    return CompareView(
        found=reading,
        problem=problem,
        verdicts=tuple(verdict(compare_trials(reading, shown[0], t)) for t in shown[1:]),
        columns=tuple((t, _without(reading, t, numbers)) for t in shown),
        knobs=tuple((clean(n), tuple(knob_value(t.configuration.get(n), n) for t in shown)) for n in names),
        figures=tuple((name, values) for name, values in _figures(reading, shown) if len(set(values)) > 1),
        alike=len(every) - len(names),
        phases=_phases(reading, shown),
        choices=_choices(reading, numbers),
    )


def _problem(numbers: Sequence[int], by_number: dict[int, Trial]) -> str:
    unknown = [f"#{n}" for n in numbers if n not in by_number]
    if unknown:
        return f"There is no trial {', '.join(unknown)} in this study."
    if not LEAST <= len(numbers) <= MOST:
        return f"Choose {LEAST} to {MOST} trials."
    return ""


def _without(reading: StudyReading, trial: Trial, numbers: Sequence[int]) -> str:
    rest = [n for n in numbers if n != trial.number]
    return links.compare_page(reading.study.id, rest) if len(rest) >= LEAST else ""


def _figures(reading: StudyReading, trials: Sequence[Trial]) -> list[Line]:
    rows: list[tuple[str, Callable[[Trial], str]]] = [
        ("outcome", outcome_word),
        ("tokens/hour", measured_words),
        (
            "over the baseline" if reading.reference == reading.study.spec.baseline else "over the reference",
            reading.gain_words,
        ),
        ("speed cycles", lambda t: str(len(t.speed_cycles()))),
        ("took", lambda t: "-" if t.seconds is None else format_duration(t.seconds)),
        ("starting up", lambda t: format_duration(sum(t.startup.values())) if t.startup else "-"),
        ("host peak", lambda t: known_size(t.host_peak)),
        ("GPU peak", lambda t: known_size(t.device_peak)),
        ("GPU busy", lambda t: percent(use.whole.gpu.busy) if (use := trial_use(t)) is not None else "-"),
        ("energy", lambda t: energy_words(trial_use(t)) or "-"),
        ("cause", lambda t: clean(t.outcome.sentence()) if t.outcome is not None and not t.outcome.ok else "-"),
    ]
    pool = capacity_of(reading.study.spec).pool
    seen = ordered(name for t in trials for name in by_phase(t, pool))
    rows += [(f"peak in {name}", _peak_in(name, reading)) for name in seen]
    return [(name, tuple(words(t) for t in trials)) for name, words in rows]


def _peak_in(name: str, reading: StudyReading) -> Callable[[Trial], str]:
    pool = capacity_of(reading.study.spec).pool
    return lambda trial: known_size(by_phase(trial, pool).get(name))


def _phases(reading: StudyReading, trials: Sequence[Trial]) -> Chart | None:
    measured = [t for t in trials if t.speed_cycles()]
    if not measured:
        return None
    bars = [Bar(f"#{t.number}", mean_phases(t.speed_cycles()), t.number) for t in measured]
    return stacked("phases", "Seconds of a cycle, by phase", bars, links.trials_of(reading.study.id), "")


def _choices(reading: StudyReading, numbers: Sequence[int]) -> tuple[tuple[int, str, bool], ...]:
    """Returns the trials to choose from: compared ones, the baseline, the answer, the fastest ones."""
    best = best_of(reading)
    first = [0, *([best.number] if best is not None else []), *(t.number for t in reading.best_first[:MOST_CHOICES])]
    wanted = dict.fromkeys([*numbers, *first])
    by_number = {t.number: t for t in reading.trials}
    shown = [by_number[n] for n in wanted if n in by_number]
    return tuple((t.number, f"{measured_words(t)}, {outcome_word(t)}", t.number in numbers) for t in shown)
