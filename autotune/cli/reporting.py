"""``autotune report``: a study as one Markdown file."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from autotune.answers import Source, answer
from autotune.cli import console
from autotune.cli.options import HomeOption, StudyArgument, find_study, reading
from autotune.errors import UsageError
from autotune.report import Material, plot, report
from trainer.child.contract import write_atomic

STANDARD_OUTPUT = "-"


def report_command(
    study: StudyArgument = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - prints it.")
    ] = STANDARD_OUTPUT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    home: HomeOption = None,
) -> None:
    """A study as one Markdown file: answer, evidence, all trials, failures, how to reproduce it.

    Beside FILE a plot of the same name is written as .svg. The same study always gives the same text.

    \b
    Examples:
      autotune report -o report.md
      autotune report my-study -o - | less
    """
    target = None if output == STANDARD_OUTPUT else Path(os.path.expanduser(output))
    picture = None if target is None else target.with_suffix(".svg")
    _refuse_to_overwrite([p for p in (target, picture) if p is not None], force=force)
    material = _material(study, home, "" if picture is None else quote(picture.name))
    text = report(material)
    if target is None or picture is None:
        console.line(text.removesuffix("\n"))
        return
    try:
        write_atomic(target, text)
        write_atomic(picture, plot(material.trials, material.study.spec.baseline))
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from None
    console.line(str(target))


def _refuse_to_overwrite(paths: list[Path], *, force: bool) -> None:
    if len(set(paths)) < len(paths):
        raise UsageError(f"{paths[0]} would be the plot; name the report itself, such as {paths[0].with_suffix('.md')}")
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file, such as {path / 'report.md'}")
        if path.exists() and not force:
            raise UsageError(f"{path} is there already; --force overwrites it")


def _material(study: str | None, home: Path | None, picture: str) -> Material:
    with reading(home) as (_, store):
        found = find_study(store, study)
        trials = store.trials(found.id)
        source, recommendation = answer(store, found, trials)
        spec = found.spec
        space = import_module("search_spaces.space").SearchSpace.from_json(spec.space)
        return Material(
            study=found,
            trials=trials,
            recommendation=recommendation,
            final=source is Source.RECOMMENDATION,
            fingerprint=store.fingerprint(found.id),
            spent=store.spent(found.id),
            legal=len(space.candidates(spec.baseline, spec.resources, same_learning=False)),
            plot=picture,
        )
