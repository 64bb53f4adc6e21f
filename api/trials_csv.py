"""Trials as a CSV file for spreadsheets and data frames: a row a trial, a column a figure, note, tag and knob."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from autotune.documents.study import trial_json
from autotune.domain import Trial
from autotune.recommendation.annotations import Annotation
from autotune.recommendation.reading import StudyReading
from autotune.wording.text import in_order

FIGURES = (
    *("number", "kind", "state", "source", "pair", "tokens_per_hour", "tokens_per_hour_per_gpu", "speed_cycles"),
    *("feasible", "worst_case_passed", "host_peak_bytes", "device_peak_bytes", "wall_seconds"),
    *("started_at", "finished_at"),
)
"""Fields of a trial's JSON that are columns, in their order."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet would run as a formula."""


def trials_csv(reading: StudyReading, trials: Sequence[Trial], notes: Mapping[int | None, Annotation]) -> bytes:
    """Returns the file; gains are ratios minus one over the baseline, an unknown figure is empty."""
    knobs = in_order({name for trial in reading.trials for name in trial.configuration})
    stream = io.StringIO()
    lines = csv.writer(stream, lineterminator="\r\n")
    lines.writerow([*FIGURES, "gain", "outcome", "note", "tags", *knobs])
    for trial in trials:
        document = trial_json(trial, reading.study.spec.baseline)
        annotation = notes.get(trial.number, Annotation())
        outcome = "" if trial.outcome is None else trial.outcome.sentence()
        row = [*(document[name] for name in FIGURES), reading.gains.get(trial.configuration), outcome]
        row += [annotation.note, " ".join(annotation.tags), *(trial.configuration.get(name) for name in knobs)]
        lines.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in row])
    return stream.getvalue().encode("utf-8", "replace")
