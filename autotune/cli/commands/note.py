"""``autotune note``: notes and tags of people on a study and its trials."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli import console
from autotune.cli.options import HomeOption, JsonOption, find_study, reading
from autotune.recommendation.annotations import annotate, annotations_json, annotations_of


def note(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The new note; without it and --tag all are shown.")
    ] = None,
    study: Annotated[str | None, typer.Option(metavar="STUDY", help="The newest if it is left out.")] = None,
    trial: Annotated[int | None, typer.Option(min=0, metavar="N", help="Of this trial; else of the study.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag; may be repeated.")] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Shows notes and tags of a study and its trials, or sets one.

    A new note replaces the one before, with its tags; an empty text removes it.

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
    if as_json:
        console.document(document)
        return
    for each in document["annotations"]:
        about = "study" if each["trial"] is None else f"#{each['trial']}"
        console.line("  ".join([about, each["note"], *(f"[{word}]" for word in each["tags"])]))
