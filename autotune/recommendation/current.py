"""How a study stands and what it answers, as JSON; and whether its running trial shows a sign of life."""

from __future__ import annotations

import stat
from collections.abc import Sequence

from autotune.documents.recommendation import recommendation_json
from autotune.documents.study import Document, budget_json, plain, study_json, trial_json
from autotune.domain import Study, Trial, TrialState
from autotune.insights.standings import count
from autotune.recommendation.reading import StudyReading
from autotune.settings import HomePaths
from trainer.child.contract import CurrentPhase, RunPaths, read_phase

Life = tuple[CurrentPhase, float]
"""The phase a running trial is in, and the UTC seconds at which its process last marked one."""


LARGEST_MARK = 4096
"""Bytes; a mark has far fewer."""


def answer_document(found: StudyReading) -> Document:
    """The answer with where it comes from; ``recommendation`` is ``null`` when no trial has succeeded."""
    document = None if found.recommendation is None else recommendation_json(found.recommendation)
    return {"study": plain(found.study.spec.name), "source": found.source.value, "recommendation": document}


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


def status_document(found: StudyReading, life: Life | None, now: float) -> Document:
    """How a study stands; ``now`` is UTC seconds, for the age of the phase."""
    study, running = found.study, running_trial(found.trials)
    return {
        "study": study_json(study),
        "spent": {"wall_seconds": plain(found.spent[0]), "gpu_seconds": plain(found.spent[1])},
        "budget": budget_json(found.limits),
        "counts": {"states": count(found.trials).states, "failures": count(found.trials).failures},
        "running": None if running is None else _running(study, running, life, now),
        "source": found.source.value,
        "best": None if found.recommendation is None else recommendation_json(found.recommendation),
    }


def _running(study: Study, trial: Trial, life: Life | None, now: float) -> Document:
    document = trial_json(trial, study.spec.baseline)
    phase, marked = life if life is not None else (None, None)
    document["phase"] = None if phase is None else plain(phase.phase)
    document["cycle"] = None if phase is None else phase.cycle
    document["cycle_kind"] = None if phase is None else plain(phase.cycle_kind)
    document["phase_age_seconds"] = None if marked is None else plain(max(0.0, now - marked))
    return document
