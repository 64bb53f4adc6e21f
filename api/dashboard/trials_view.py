"""View of a study's list of trials, and words of its rows and of the list of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.dashboard.filters import PAGE, Menu, TrialFilter, TrialsPage, menus, trials_page
from api.dashboard.links import study_page
from api.filters import SORTS
from autotune.domain import Trial, TrialState
from autotune.recommendation.annotations import Annotation
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.statistics import evidence
from autotune.wording.sentences import PERMITTED_MARK, measured_words
from autotune.wording.text import changes, clean

SHOWN_FAILURES = 20
SHOWN_KNOBS = 12


@dataclass(frozen=True)
class TrialTable:
    """A page of the trial table, with a column for each knob that differs between trials, ``SHOWN_KNOBS`` at most."""

    heads: tuple[str, ...]
    found: StudyReading
    part: TrialsPage
    fastest: float
    """Tokens/hour of the fastest trial of the study; 0 without a measurement."""
    over: str
    """Name of the configuration that each row's ratio is stated over."""
    before: str
    """Address of the previous page; empty on the first."""
    after: str
    menus: tuple[Menu, ...]
    every: str
    """Address without any filter; empty if no filter is set."""
    order: str
    """Name of the order, such as ``best first``."""
    marked: bool
    """True if some row has the mark of other rounding or learning."""
    stopped: bool = False
    """True if some row is of a trial that was stopped because it cannot win."""
    columnless: tuple[str, ...] = ()
    """Further knobs that differ."""
    csv: str = ""
    """Address of the trials that pass the filter, as a file."""
    notes: Mapping[int | None, Annotation] = field(default_factory=dict)


def trial_table(
    reading: StudyReading,
    selection: TrialFilter | None = None,
    most: int = PAGE,
    notes: Mapping[int | None, Annotation] | None = None,
) -> TrialTable:
    """Returns a page of ``most`` trials that pass the filter; by default the best."""
    selection = selection or TrialFilter()
    fastest = max((t.tokens_per_hour or 0.0 for t in reading.trials), default=0.0)
    part = trials_page(reading, selection, most)
    study_id = reading.study.id
    heads = tuple(n for n in selection.columns if n in reading.differing) or reading.differing[:SHOWN_KNOBS]
    return TrialTable(
        heads=heads,
        found=reading,
        part=part,
        fastest=fastest,
        over=f"vs {reading.reference_word}",
        before=_turned(study_id, selection, part, -1),
        after=_turned(study_id, selection, part, 1),
        menus=menus(reading, selection),
        every=study_page(study_id) if selection.query() else "",
        order=SORTS[selection.sort][0],
        marked=any(PERMITTED_MARK in marked_speed(trial, reading) for trial in part.shown),
        stopped=any(trial.outcome is not None and trial.at_most is not None for trial in part.shown),
        columnless=tuple(clean(name) for name in reading.differing if name not in heads),
        csv=study_page(study_id, selection.query()).replace(f"/{study_id}", f"/{study_id}/trials.csv", 1),
        notes=notes or {},
    )


def _turned(study_id: int, selection: TrialFilter, part: TrialsPage, by: int) -> str:
    page = part.page + by
    return study_page(study_id, replace(selection, page=page).query()) + "#trials" if 1 <= page <= part.pages else ""


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


def failures(reading: StudyReading) -> tuple[Trial, ...]:
    """Returns the failed trials, the latest first, at most ``SHOWN_FAILURES``."""
    failed = [t for t in reading.trials if t.state is TrialState.FAIL]
    return tuple(sorted(failed, key=lambda t: (t.finished_at or 0.0, t.number), reverse=True)[:SHOWN_FAILURES])


def changed_words(trial: Trial, reading: StudyReading) -> str:
    """Returns a trial's changes, such as ``micro_batch_size 2 → 4``, or that it is as the baseline."""
    parts = [f"{n} {a} → {b}" for n, a, b in changes(trial.configuration, reading.study.spec.baseline)]
    return ", ".join(parts) or "as the baseline"


def name_of(reading: StudyReading) -> str:
    """Returns the study's name, or its id if it has none."""
    return clean(reading.study.spec.name) or f"study {reading.study.id}"


def sure_word(reading: StudyReading) -> str:
    """Returns a word for the reliability of the first row; empty without one."""
    if reading.first_row is None:
        return ""
    if reading.source is AnswerSource.BEST_SO_FAR:
        return "so far"
    return "confirmed" if reading.first_row.confirmed else "not confirmed"
