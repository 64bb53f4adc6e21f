"""The commands about one trial: show, logs and note."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import console
from autotune.cli.options import HomeOption, JsonOption, StudyArgument, TrialArgument, find_study, reading
from autotune.cli.runlog import follow, read_lines
from autotune.cli.screens.trial import NUMERICS, trial_screen
from autotune.cli.source import UrlOption, source_at
from autotune.documents.study import place_json, plain, trial_json
from autotune.domain import Trial
from autotune.domain.places import place_of
from autotune.errors import NotFoundError
from autotune.insights.feasibility import advice
from autotune.insights.roofline import roof_of
from autotune.insights.usage_words import usage_json
from autotune.recommendation.annotations import annotate, annotations_json, annotations_of
from autotune.recommendation.current import log_of, log_tail, paths_of
from autotune.recommendation.reading import read_study
from autotune.wording.text import clean

POLL_S = 0.5


def show(
    number: TrialArgument,
    study: StudyArgument = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    url: UrlOption = None,
) -> None:
    """Shows one trial in full, and whether its speed is normal.

    \b
    Examples:
      autotune show 7
      autotune show 3 my-study --json
    """
    with source_at(home, url) as source:
        read = source.read(study)
        found = read.study
        trial = read.trial(number)
        more = source.trial(found, trial)
    roof = roof_of(found, read.fingerprint)
    if as_json:
        guards = {note.name: plain(note.data) for note in more.notes if note.name in NUMERICS}
        beside = {"usage": usage_json(trial, roof), "numerics": guards, "place": place_json(place_of(more.notes))}
        document = trial_json(trial, found.spec.baseline, cycles=True) | beside | {"log_tail": plain(more.log_tail)}
        console.document({"study": found.spec.name, "trial": document})
        return
    if trial.outcome is not None:
        trial = replace(trial, outcome=replace(trial.outcome, suggestion=advice(trial, read.trials)))
    screen = trial_screen(
        trial, found, log=more.log_tail, log_path=more.log, notes=more.notes, timeline=more.timeline, roof=roof
    )
    console.show(screen)


def logs(
    number: TrialArgument,
    study: StudyArgument = None,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the trial ends.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Show only the last N lines.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of an attempt. Default: the last.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Show the log of the trial's rollout server.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Prints the log of a trial, with terminal escapes removed.

    \b
    Examples:
      autotune logs 7
      autotune logs 7 -f
      autotune logs 7 --attempt 1 -n 50
      autotune logs 7 --server
    """
    with reading(home) as (settings, store):
        found = find_study(store, study)
        trial = read_study(store, found).trial(number)
        paths = paths_of(settings.home, found, trial, attempt)
        path = paths.server_log if server else log_of(settings.home, found, trial, attempt)
        if server and not path.exists():
            raise NotFoundError(f"trial {trial.number} had no rollout server, so there is no log of one")

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


def _whole(path: Path, lines: int | None, trial: Trial) -> Iterator[str]:
    try:
        if lines is not None:
            yield from log_tail(path, lines)
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


def note(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The new note. Without TEXT and --tag, all notes are shown.")
    ] = None,
    study: Annotated[str | None, typer.Option(metavar="STUDY", help="Study name or id. Default: the newest.")] = None,
    trial: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Trial to annotate. Default: annotate the study.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Tag of the note; may be repeated.")] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Shows notes and tags of a study and its trials, or sets one.

    A new note replaces the previous note and its tags. An empty text removes the note.

    \b
    Examples:
      autotune note "the machine was busy" --trial 7 --tag doubtful
      autotune note
    """
    with reading(home) as (_, store):
        found = find_study(store, study)
        if text is not None or tag:
            annotate(store, found.id, trial, text or "", tag or ())
        document = annotations_json(found.spec.name, annotations_of(store, found.id))
    about = (("study" if a["trial"] is None else f"#{a['trial']}", a) for a in document["annotations"])
    lines = ("  ".join([name, a["note"], *(f"[{word}]" for word in a["tags"])]) for name, a in about)
    console.answer(document, lines, as_json=as_json)
