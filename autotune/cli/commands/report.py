"""``autotune report``: writes a study as one Markdown file, or as one page with its charts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from autotune.cli import console
from autotune.cli.commands.start_options import PriceOption, UpdatesOption
from autotune.cli.options import HomeOption, JsonOption, StudyArgument, find_study, reading
from autotune.documents.study import trial_json
from autotune.errors import UsageError
from autotune.insights.why import why_json
from autotune.recommendation.current import answer_document
from autotune.recommendation.reading import StudyReading, read_study
from trainer.child.contract import write_atomic

if TYPE_CHECKING:
    from autotune.recommendation.export import Exported

PAGES = (".html", ".htm")
TEXTS = (".md", ".markdown", ".txt", ".svg", "")


def report_command(
    study: StudyArgument = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - prints to stdout.")
    ] = "-",
    updates: UpdatesOption = None,
    price: PriceOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Writes a report: recommendation, evidence, every trial.

    FILE.html is one self-contained page with charts. Any other name gives Markdown, and a plot of the same
    name with the suffix .svg. The same study always gives the same text.

    \b
    Examples:
      autotune report -o report.html
      autotune report -o report.md --updates 2000 --price 2.50
      autotune report my-study -o - | less
      autotune report --json | jq '.why.ruled_out'
    """
    from autotune.forecast.explain import explain
    from autotune.recommendation.whole_run import check_asked, whole_run, whole_run_json, whole_run_words

    check_asked(updates, price)
    target = None if output == "-" else Path(os.path.expanduser(output))
    if as_json and target is not None:
        raise UsageError("--json prints one document; it cannot be used with --output")
    if target is not None and target.is_dir():
        raise UsageError(f"{target} is a folder; name a file, such as {target / 'report.md'}")
    picture = None if target is None or target.suffix.lower() in PAGES else target.with_suffix(".svg")
    _refuse_to_overwrite([p for p in (target, picture) if p is not None], force=force)
    read, exports = _read(study, home)
    run = None if updates is None else whole_run(read.study.spec, read.trials, read.recommendation, updates, price)
    if as_json:
        trials = [trial_json(trial, read.study.spec.baseline) for trial in read.trials]
        document = {**answer_document(read), "why": why_json(explain(read)), "trials": trials}
        console.document(document | ({"whole_run": whole_run_json(run)} if updates else {}))
        return
    words = () if run is None else whole_run_words(run)
    if target is not None and picture is None:
        from api.dashboard.report_page import report_page

        _write({target: report_page(read, exports, words)})
        return
    _write_text(read, exports, words, target)


def _write_text(read: StudyReading, exports: Sequence[Exported | str], run: Sequence[str], target: Path | None) -> None:
    """Writes the Markdown file and its plot, or prints the Markdown."""
    from autotune.charts.chart import file_of
    from autotune.charts.history import history
    from autotune.forecast.explain import explain
    from autotune.report import report
    from search_spaces.space import SearchSpace

    picture = None if target is None else target.with_suffix(".svg")
    spec = read.study.spec
    legal = SearchSpace.from_json(spec.space).candidates(spec.baseline, spec.resources, same_learning=False)
    text = report(read, legal=len(legal), plot=quote(picture.name) if picture else "", reasons=explain(read))
    text += "".join(f"\nYour run: {sentence}.\n" for sentence in run) + _answers_file(exports)
    if target is None or picture is None:
        console.line(text.removesuffix("\n"))
        return
    _write({target: text, picture: file_of(history(read.trials, spec))})


def _write(texts: Mapping[Path, str]) -> None:
    target = next(iter(texts))
    if not target.parent.exists():
        console.say(f"making the folder {target.parent}")
    try:
        for path, text in texts.items():
            write_atomic(path, text)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from None
    console.line(str(target))


def _answers_file(exports: Sequence[Exported | str]) -> str:
    """Returns a section with the recommendation as the framework's file; empty if it cannot be exported."""
    from autotune.report.markdown import block

    made = next((first for first in exports[:1] if not isinstance(first, str)), None)
    return f"\n## The answer as {made.main}\n\n{block(made.export.files[made.main].splitlines())}\n" if made else ""


def _refuse_to_overwrite(paths: list[Path], *, force: bool) -> None:
    if paths and paths[0].suffix.lower() not in (*PAGES, *TEXTS):
        raise UsageError(f"--output {paths[0]}: expected a name that ends in .html or .md")
    if len(set(paths)) < len(paths):
        raise UsageError(f"{paths[0]} would be the plot; name the report itself, such as {paths[0].with_suffix('.md')}")
    for path in paths:
        if path.exists() and not force:
            raise UsageError(f"{path} is there already; --force overwrites it")


def _read(study: str | None, home: Path | None) -> tuple[StudyReading, list[Exported | str]]:
    """Reads a study, and the exported files of each row of its recommendation."""
    from autotune.recommendation.export import ExportChoice, export_or_reason

    with reading(home) as (_, store):
        found = read_study(store, find_study(store, study))
        rows = () if found.recommendation is None else found.recommendation.rows
        return found, [export_or_reason(found, ExportChoice(row + 1), store) for row in range(len(rows))]
