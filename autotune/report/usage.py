"""The report's section on what the GPU and the host did, and whether the speed is normal."""

from __future__ import annotations

from autotune.domain import Trial
from autotune.insights.roofline import roof_of
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import LEGEND, by_phase, energy_words, speed_sentence
from autotune.recommendation.reading import StudyReading
from autotune.report.markdown import code, table
from autotune.statistics import evidence


def section(reading: StudyReading) -> list[str]:
    """Of the reference and of a trial of each row of the answer; nothing where nothing was recorded."""
    roof = roof_of(reading.study, reading.fingerprint)
    parts = []
    for name, trial in _shown(reading).items():
        use = trial_use(trial)
        cells = by_phase(use)
        if cells is None:
            continue
        parts.append(f"### {code(name)}, trial #{trial.number}")
        parts += [f"- {code(said)}" for said in (speed_sentence(trial, roof), energy_words(use)) if said]
        parts.append(table(cells.heads, cells.rows, right=range(1, len(cells.heads))))
    if parts:
        parts.insert(0, f"In the mean speed cycle. {LEGEND}.")
    return parts


def _shown(reading: StudyReading) -> dict[str, Trial]:
    """By name; each trial once."""
    by_number = {trial.number: trial for trial in reading.trials}
    anchor = evidence.reference(reading.trials, reading.study.spec.baseline)
    named = {} if anchor is None else {anchor.kind.value: anchor}
    for row in reading.recommendation.rows if reading.recommendation is not None else ():
        measured = next((by_number[n] for n in row.trials if n in by_number and by_number[n].speed_cycles()), None)
        if measured is not None and measured not in named.values():
            named[row.title] = measured
    return named
