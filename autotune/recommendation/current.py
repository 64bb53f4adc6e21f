"""What a study answers right now, as every command, the REST API and the page state it."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from autotune.documents.recommendation import recommendation_json
from autotune.documents.study import Document, budget_json, plain, study_json, trial_json
from autotune.domain import Budget, Event, Recommendation, Study, StudyStatus, Trial, TrialState
from autotune.insights.standings import count
from autotune.ports import Store
from autotune.recommendation.recommend import recommend
from autotune.settings import HomePaths
from trainer.child.contract import CurrentPhase, RunPaths, read_phase

Life = tuple[CurrentPhase, float]
"""The phase a running trial is in, and the UTC seconds at which its process last marked one."""


LARGEST_MARK = 4096
"""Bytes; a mark has far fewer."""


class Source(StrEnum):
    """Where an answer comes from."""

    RECOMMENDATION = "recommendation"
    BEST_SO_FAR = "best_so_far"


def answer(store: Store, study: Study, trials: Sequence[Trial]) -> tuple[Source, Recommendation | None]:
    """The stored recommendation, unless trials have ended since; then what all trials support now."""
    return answered(store.recommendation(study.id), study, trials)


def answered(
    stored: Recommendation | None, study: Study, trials: Sequence[Trial]
) -> tuple[Source, Recommendation | None]:
    """``answer``, with the stored recommendation given; pure."""
    latest = max((t.finished_at or 0.0 for t in trials), default=0.0)
    if stored is not None and latest <= stored.created_at:
        return Source.RECOMMENDATION, stored
    ended_by = "not ended: this is the best so far" if study.status is StudyStatus.OPEN else "unknown"
    return Source.BEST_SO_FAR, recommend(study.spec, trials, ended_by, now=latest)


def answer_document(study: Study, source: Source, recommendation: Recommendation | None) -> Document:
    """The answer with where it comes from; ``recommendation`` is ``null`` when no trial has succeeded."""
    document = None if recommendation is None else recommendation_json(recommendation)
    return {"study": plain(study.spec.name), "source": source.value, "recommendation": document}


def last_event(store: Store, study: Study, kind: str) -> Event | None:
    """The newest of its kind."""
    found: Event | None = None
    while events := store.events(study.id, after=0 if found is None else found.id, kind=kind):
        found = events[-1]
    return found


def last_budget(store: Store, study: Study) -> Budget:
    """What the last run of the tuner was given; no limit at all before the first."""
    event = last_event(store, study, "session_started")
    data: Mapping[str, Any] = {} if event is None else event.data
    return Budget(wall_s=data.get("wall_s"), max_trials=data.get("max_trials"), gpu_hours=data.get("gpu_hours"))


def attempt_paths(home: HomePaths, study: Study, trial: Trial, attempt: int | None = None) -> RunPaths:
    """Where an attempt (the last unless told) keeps its files."""
    return RunPaths(home.attempt(study.id, study.spec.name, trial.number, attempt or trial.attempt))


def sign_of_life(paths: RunPaths) -> Life | None:
    """The last mark of a trial's process, or ``None`` if it has made none that can be read here.

    What runs in a trial is the user's: whatever else it may have put there is neither waited for nor believed.
    """
    try:
        seen = paths.phase.lstat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST_MARK:
            return None
        phase = read_phase(paths.phase)
        return None if phase is None else (phase, seen.st_mtime)
    except (OSError, ValueError):
        return None


def running_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial that is being run."""
    return next((t for t in trials if t.state is TrialState.RUNNING), None)


def status_document(
    study: Study,
    trials: Sequence[Trial],
    spent: tuple[float, float],
    limits: Budget,
    life: Life | None,
    answered: tuple[Source, Recommendation | None],
    now: float,
) -> Document:
    """How a study stands. ``spent`` is wall and GPU seconds; ``now`` is UTC seconds, for the age of the phase."""
    running = running_trial(trials)
    source, recommendation = answered
    return {
        "study": study_json(study),
        "spent": {"wall_seconds": plain(spent[0]), "gpu_seconds": plain(spent[1])},
        "budget": budget_json(limits),
        "counts": {"states": count(trials).states, "failures": count(trials).failures},
        "running": None if running is None else _running(study, running, life, now),
        "source": source.value,
        "best": None if recommendation is None else recommendation_json(recommendation),
    }


def _running(study: Study, trial: Trial, life: Life | None, now: float) -> Document:
    document = trial_json(trial, study.spec.baseline)
    phase, marked = life if life is not None else (None, None)
    document["phase"] = None if phase is None else plain(phase.phase)
    document["cycle"] = None if phase is None else phase.cycle
    document["cycle_kind"] = None if phase is None else plain(phase.cycle_kind)
    document["phase_age_seconds"] = None if marked is None else plain(max(0.0, now - marked))
    return document
