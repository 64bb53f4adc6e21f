"""The commands that look at one trial: show and logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import console
from autotune.cli.options import HomeOption, JsonOption, StudyArgument, TrialArgument, find_study, find_trial, reading
from autotune.cli.runlog import follow, read_lines, tail
from autotune.cli.screens.text import clean
from autotune.cli.screens.trial import NUMERICS, trial_screen
from autotune.documents import memory_timeline
from autotune.documents.study import plain, trial_json
from autotune.domain import Study, Trial, TrialState
from autotune.errors import NotFoundError
from autotune.insights.roofline import roof_of
from autotune.insights.usage_json import usage_json
from autotune.recommendation.current import attempt_paths
from autotune.settings import HomePaths

LOG_LINES = 20
"""Shown of a failed trial's log."""

POLL_S = 0.5


def log_of(home: HomePaths, study: Study, trial: Trial, attempt: int | None = None) -> Path:
    """The log of an attempt; of the last one by default, where the outcome says it is."""
    recorded = trial.outcome.log_path if trial.outcome is not None else ""
    if recorded and attempt in (None, trial.attempt):
        return Path(recorded)
    return attempt_paths(home, study, trial, attempt).log


def show(
    number: TrialArgument, study: StudyArgument = None, as_json: JsonOption = False, home: HomeOption = None
) -> None:
    """One trial in full: knobs, outcome, phases, memory, GPU, lengths, and whether its speed is normal.

    \b
    Examples:
      autotune show 7
      autotune show 3 my-study --json
    """
    with reading(home) as (settings, store):
        found = find_study(store, study)
        trial = find_trial(store.trials(found.id), number, found)
        notes = store.notes(found.id, number)
        roof = roof_of(found, store.fingerprint(found.id))
    log = log_of(settings.home, found, trial)
    last = tail(log, LOG_LINES) if trial.state is TrialState.FAIL else ()
    if as_json:
        document = trial_json(trial, found.spec.baseline, cycles=True)
        guards = {note.name: plain(note.data) for note in notes if note.name in NUMERICS}
        more = {"usage": usage_json(trial, roof), "numerics": guards, "log_tail": plain(last)}
        console.document({"study": found.spec.name, "trial": {**document, **more}})
        return
    where = str(log) if trial.attempt else ""
    timeline = memory_timeline.read(attempt_paths(settings.home, found, trial).memory) if trial.attempt else None
    console.show(trial_screen(trial, found, log=last, log_path=where, notes=notes, timeline=timeline, roof=roof))


def logs(
    number: TrialArgument,
    study: StudyArgument = None,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial ends.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Only the last lines.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="An earlier attempt; else the last.")] = None,
    server: Annotated[bool, typer.Option("--server", help="The rollout server's log, if there was one.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """The log of a trial, with terminal escapes removed.

    \b
    Examples:
      autotune logs 7
      autotune logs 7 -f
      autotune logs 7 --attempt 1 -n 50
      autotune logs 7 --server
    """
    with reading(home) as (settings, store):
        found = find_study(store, study)
        trial = find_trial(store.trials(found.id), number, found)
        _require_attempt(trial, attempt)
        path = log_of(settings.home, found, trial, attempt)
        if server:
            path = _of_server(attempt_paths(settings.home, found, trial, attempt).server_log, trial)

        def over() -> bool:
            now = store.trial(found.id, number)
            return now.state.is_finished or (attempt or trial.attempt) < now.attempt

        if following:
            _write(follow(path, over, lambda: time.sleep(POLL_S)), as_json=as_json)
            return
    text = _whole(path, lines, trial)
    if as_json:
        place = {"study": found.spec.name, "trial": number, "attempt": attempt or trial.attempt, "path": str(path)}
        console.document({**plain(place), "lines": list(text)})
        return
    _write(text, as_json=False)


def _require_attempt(trial: Trial, attempt: int | None) -> None:
    if trial.attempt == 0:
        raise NotFoundError(f"trial {trial.number} has not been started, so it has no log")
    if attempt is not None and attempt > trial.attempt:
        raise NotFoundError(f"trial {trial.number} has no attempt {attempt}; the last is {trial.attempt}")


def _of_server(path: Path, trial: Trial) -> Path:
    if not path.exists():
        raise NotFoundError(f"trial {trial.number} had no rollout server, so there is no log of one")
    return path


def _whole(path: Path, lines: int | None, trial: Trial) -> Iterator[str]:
    try:
        if lines is not None:
            yield from tail(path, lines)
        else:
            yield from read_lines(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotFoundError(f"the log of trial {trial.number} cannot be read: {clean(path)} ({reason})") from None


def _write(lines: Iterable[str], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            console.record({"line": line})
        else:
            console.line(line)
