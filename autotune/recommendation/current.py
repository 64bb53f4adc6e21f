"""Builds the status and the recommendation of a study as JSON, and reads the files of a trial."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.documents.memory_timeline import MemoryTimeline, plain_file
from autotune.documents.memory_timeline import read as read_timeline
from autotune.documents.recommendation import recommendation_json
from autotune.documents.study import Document, budget_json, place_json, plain, study_json, trial_json
from autotune.domain import Study, Trial, TrialState
from autotune.domain.places import TrialPlace
from autotune.errors import NotFoundError
from autotune.insights.standings import count
from autotune.recommendation.places import PlaceNow
from autotune.recommendation.reading import StudyReading
from autotune.settings import HomePaths
from autotune.wording.text import clean_line
from trainer.child.contract import CurrentPhase, NoteRecord, RunPaths, read_phase

Life = tuple[CurrentPhase, float]
"""Current phase of a running trial, and the UTC seconds at which its process last recorded one."""
Lives = Mapping[int, Life | None]
"""Trial number -> phase of each running trial; ``None`` before its first phase."""

LARGEST_MARK = 4096
"""Largest phase file, in bytes; a valid one is far smaller."""
LOG_LINES = 20
"""Lines that are read of a failed trial's log."""
LOG_BYTES = 1 << 16
"""Bytes at the end of a log that are searched for its last lines."""


@dataclass(frozen=True)
class TrialReading:
    """Notes, log and memory timeline of a trial's last attempt."""

    notes: tuple[NoteRecord, ...]
    log: str
    """Path of the log on the machine of the study; empty before the first attempt."""
    log_tail: tuple[str, ...]
    """Last ``LOG_LINES`` lines of the log, if the trial failed."""
    timeline: MemoryTimeline | None
    life: Life | None
    """Current phase, if the trial is running."""
    now: float
    """Time of reading, in UTC seconds of the study's machine."""


def answer_document(found: StudyReading) -> Document:
    """Converts the recommendation and its source to JSON; ``recommendation`` is ``null`` until a trial succeeds."""
    document = None if found.recommendation is None else recommendation_json(found.recommendation)
    return {"study": plain(found.study.spec.name), "source": found.source.value, "recommendation": document}


def attempt_paths(home: HomePaths, study: Study, trial: Trial, attempt: int | None = None) -> RunPaths:
    """Returns the paths of an attempt's files; of the last attempt if no number is given."""
    return RunPaths(home.attempt(study.id, study.spec.name, trial.number, attempt or trial.attempt))


def paths_of(home: HomePaths, study: Study, trial: Trial, attempt: int | None, what: str = "log") -> RunPaths:
    """Returns the paths of an attempt's files, by default the last one's. Raises ``NotFoundError`` if the trial was
    not started (so it has no ``what``) or has no such attempt."""
    if trial.attempt == 0:
        raise NotFoundError(f"trial {trial.number} has not been started, so it has no {what}")
    if attempt is not None and attempt > trial.attempt:
        raise NotFoundError(f"trial {trial.number} has no attempt {attempt}; the last is {trial.attempt}")
    return attempt_paths(home, study, trial, attempt)


def log_of(home: HomePaths, study: Study, trial: Trial, attempt: int | None = None) -> Path:
    """Returns the path of an attempt's log; of the last attempt by default, as its outcome recorded it."""
    recorded = trial.outcome.log_path if trial.outcome is not None else ""
    if recorded and attempt in (None, trial.attempt):
        return Path(recorded)
    return attempt_paths(home, study, trial, attempt).log


def read_trial(
    home: HomePaths, study: Study, trial: Trial, notes: tuple[NoteRecord, ...], opened: Callable[[Path], int]
) -> TrialReading:
    """Reads a trial's files and notes; ``opened`` returns a path's descriptor, or raises ``OSError`` or
    ``NotFoundError``."""
    paths, log = attempt_paths(home, study, trial), log_of(home, study, trial)
    return TrialReading(
        notes=notes,
        log=str(log) if trial.attempt else "",
        log_tail=log_tail(log, LOG_LINES, opened) if trial.state is TrialState.FAIL else (),
        timeline=read_timeline(paths.memory, opened) if trial.attempt else None,
        life=sign_of_life(paths) if trial.state is TrialState.RUNNING else None,
        now=time.time(),
    )


def log_tail(path: Path, count: int, opened: Callable[[Path], int] = plain_file) -> tuple[str, ...]:
    """Reads the last ``count`` non-blank lines of a log, safe for a terminal; none if it cannot be read."""
    try:
        with os.fdopen(opened(path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            lines = file.read(LOG_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, NotFoundError):
        return ()
    return tuple(bare for line in lines if (bare := clean_line(line)))[-count:] if count > 0 else ()


def sign_of_life(paths: RunPaths) -> Life | None:
    """Reads the phase that a trial's process last recorded; ``None`` if there is none. The trial runs the user's code,
    so a pipe, link or large file instead of the record is ignored."""
    try:
        seen = paths.phase.lstat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST_MARK:
            return None
        phase = read_phase(paths.phase)
        return None if phase is None else (phase, seen.st_mtime)
    except (OSError, ValueError):
        return None


def status_document(found: StudyReading, lives: Lives, now: float) -> Document:
    """Builds the status of a study as JSON; ``now`` is UTC seconds, for the age of a phase."""
    study = found.study
    return {
        "study": study_json(study, found.state.value),
        "spent": {"wall_seconds": plain(found.spent[0]), "gpu_seconds": plain(found.spent[1])},
        "budget": budget_json(found.limits),
        "counts": {"states": count(found.trials).states, "failures": count(found.trials).failures},
        "running": [_running(found, trial, lives.get(trial.number), now) for trial in found.running],
        "places": [_place(place) for place in found.places],
        "avoided_gpus": [plain(sentence) for sentence in found.avoided_gpus],
        "source": found.source.value,
        "best": None if found.recommendation is None else recommendation_json(found.recommendation),
    }


def _place(place: PlaceNow) -> Document:
    return {
        **place_json(place.at),
        "state": place.state.value,
        "trial": place.trial,
        "why": plain(place.why) or None,
        "gpu_busy_share": plain(place.busy),
    }


def _running(found: StudyReading, trial: Trial, life: Life | None, now: float) -> Document:
    document = trial_json(trial, found.study.spec.baseline)
    document["place"] = place_json(next((p.at for p in found.places if p.trial == trial.number), TrialPlace()))
    phase, marked = life if life is not None else (None, None)
    document |= {name: plain(getattr(phase, name, None)) for name in ("phase", "cycle", "cycle_kind")}
    document["phase_age_seconds"] = None if marked is None else plain(max(0.0, now - marked))
    return document
