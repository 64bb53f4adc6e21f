"""View of a study's list of trials, and texts of its rows and of the list of studies."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from api.dashboard.filters import PAGE, TrialFilter, menus, trials_page
from api.dashboard.links import study_page
from api.filters import SORTS
from autotune.documents.study import trial_json
from autotune.domain import Trial, TrialState
from autotune.insights.standings import folded
from autotune.recommendation.annotations import Annotation
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.statistics import evidence
from autotune.wording.sentences import PERMITTED_MARK, measured_words
from autotune.wording.text import changes, clean, in_order, knob_value

SHOWN_KNOBS = 12


def trial_table(
    reading: StudyReading,
    selection: TrialFilter | None = None,
    most: int = PAGE,
    notes: Mapping[int | None, Annotation] | None = None,
) -> SimpleNamespace:
    """Returns a page of ``most`` trials that pass the filter; by default the best."""
    selection = selection or TrialFilter()
    part = trials_page(reading, selection, most)
    study_id = reading.study.id
    heads = tuple(n for n in selection.columns if n in reading.differing) or reading.differing[:SHOWN_KNOBS]
    return SimpleNamespace(
        heads=heads,
        found=reading,
        part=part,
        rows=folded(part.shown),
        fastest=max((t.tokens_per_hour or 0.0 for t in reading.trials), default=0.0),
        over=f"vs {reading.reference_word}",
        before=part.turned(study_page(study_id), selection, -1),
        after=part.turned(study_page(study_id), selection, 1),
        menus=menus(reading, selection),
        every=study_page(study_id) if selection.query() else "",
        order=SORTS[selection.sort][0],
        marked=any(PERMITTED_MARK in marked_speed(trial, reading) for trial in part.shown),
        stopped=any(trial.outcome is not None and trial.at_most is not None for trial in part.shown),
        columnless=tuple(clean(name) for name in reading.differing if name not in heads),
        csv=study_page(study_id, selection.query()).replace(f"/{study_id}", f"/{study_id}/trials.csv", 1),
        notes=notes or {},
    )


def shared_value(trials: Sequence[Trial], name: str) -> str:
    """Formats a knob of the trials of one row; ``…`` where they differ."""
    values = {knob_value(trial.configuration.get(name), name) for trial in trials}
    return values.pop() if len(values) == 1 else "…"


def marked_speed(trial: Trial, reading: StudyReading) -> str:
    """Returns tokens/hour in words, with a mark if the trial changes numerics or the update."""
    spec = reading.study.spec
    same = not trial.tokens_per_hour or evidence.same_learning(trial.configuration, spec.baseline, spec.framework)
    return measured_words(trial) + ("" if same else PERMITTED_MARK)


def tone(trial: Trial) -> str:
    """Returns a trial's colour class: ``good``, ``bad``, ``now`` or empty."""
    if trial.state is TrialState.FAIL:
        return "bad"
    if trial.state is TrialState.RUNNING:
        return "now"
    return "good" if trial.feasible else ""


def changed_words(trial: Trial, reading: StudyReading) -> str:
    """Returns a trial's changes, such as ``micro_batch_size 2 → 4``, or that it equals the baseline."""
    parts = [f"{n} {a} → {b}" for n, a, b in changes(trial.configuration, reading.study.spec.baseline)]
    return ", ".join(parts) or "as the baseline"


def name_of(reading: StudyReading) -> str:
    """Returns the study's name, or its id if it has none."""
    return clean(reading.study.spec.name) or f"study {reading.study.id}"


def sure_word(reading: StudyReading) -> str:
    """Returns a word for the reliability of the recommendation's first row; empty without a recommendation."""
    if reading.first_row is None:
        return ""
    if reading.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if reading.first_row.confirmed else "not confirmed"


FIGURES = (
    *("number", "kind", "state", "source", "pair", "tokens_per_hour", "tokens_per_hour_per_gpu", "speed_cycles"),
    *("feasible", "worst_case_passed", "host_peak_bytes", "device_peak_bytes", "wall_seconds"),
    *("started_at", "finished_at"),
)
"""Fields of a trial's JSON that are columns, in their order."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet would run as a formula."""


def trials_csv(reading: StudyReading, trials: Sequence[Trial], notes: Mapping[int | None, Annotation]) -> bytes:
    """Returns trials as a CSV file, with a column for each figure, note, tag and knob. Gains are ratios minus one over
    the baseline; an unknown figure is empty."""
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
