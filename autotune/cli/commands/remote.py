"""``--url``: the reading commands, asked of a server instead of a database on this machine."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from autotune.cli import console
from autotune.cli.commands.remote_export import export
from autotune.cli.screens.text import clean
from autotune.errors import UsageError
from autotune.wording.numbers import rate, signed_percent

if TYPE_CHECKING:
    from pydantic import BaseModel

    from api.client import Client
    from autotune.cli.commands.read import Sort
    from autotune.domain import TrialKind, TrialState

__all__ = ["add_url_option"]

Document = Mapping[str, Any]

MOST_REASONS = 12

_HELP = "Ask the server at this address (`autotune serve`) instead; $AUTOTUNE_TOKEN is its token."
_OPTION = Annotated[str | None, typer.Option("--url", metavar="URL", help=_HELP)]


def add_url_option(app: typer.Typer) -> None:
    """To those commands that a server can answer; called before other options are added to all of them."""
    for command in app.registered_commands:
        answer = ANSWERS.get(getattr(command.callback, "__name__", ""))
        if command.callback is not None and answer is not None:
            command.callback = _with_url(command.callback, answer)


def _with_url(command: Callable[..., Any], answer: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*arguments: Any, url: str | None = None, **options: Any) -> Any:
        if url is None:
            return command(*arguments, **options)
        if options.get("home") is not None:
            raise UsageError("--url and --home name two places; give one of them")
        from api.client import Client

        client = Client(url, os.environ.get("AUTOTUNE_TOKEN", "").strip() or None)
        return answer(client, **options)

    shape = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("url", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTION)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shape.parameters.values()]
    run.__signature__ = shape.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*parameters, option)}
    return run


def status(client: Client, *, study: str | None = None, as_json: bool = False, **_: Any) -> None:
    """How a study stands."""
    document = _plain(client.status(client.find(study)))
    if as_json:
        console.document(document)
        return
    one, counts = document["study"], document["counts"]
    said = [f"{n} {word}" for word, n in {**counts["states"], **counts["failures"]}.items()]
    running = document["running"]
    console.line(f"{clean(one['name'])} · {one['status']} · {clean(one['framework'])} · {clean(one['model'])}")
    console.line(f"trials   {', '.join(said) or 'none'}")
    if running is not None:
        console.line(f"running  #{running['number']} {clean(running['phase'] or 'starting')}")
    _best_lines(document["best"])


def trials(
    client: Client,
    *,
    study: str | None = None,
    state: TrialState | None = None,
    kind: TrialKind | None = None,
    sort: Sort | None = None,
    as_json: bool = False,
    **_: Any,
) -> None:
    """All trials, in the order asked for."""
    number = client.find(study)
    query = {"state": state and state.value, "kind": kind and kind.value, "sort": sort and sort.value}
    found = [_plain(trial) for trial in client.trials(number, **query)]
    if as_json:
        console.document({"study": client.status(number).study.name, "trials": found})
        return
    table = Table(box=None, pad_edge=False)
    for head in ("#", "kind", "state", "tokens/h", "changes"):
        table.add_column(head, justify="right" if head in ("#", "tokens/h") else "left", overflow="fold")
    for trial in found:
        speed = trial["tokens_per_hour"]
        outcome = trial["outcome"]
        ended = outcome["reason"] if outcome and outcome["reason"] else trial["state"]
        changed = ", ".join(f"{clean(name)} {clean(c['here'])}" for name, c in trial["changes"].items())
        table.add_row(str(trial["number"]), trial["kind"], ended, "-" if speed is None else rate(speed), changed)
    console.show(table)


def show(client: Client, *, number: int, study: str | None = None, as_json: bool = False, **_: Any) -> None:
    """One trial."""
    document = _plain(client.trial(client.find(study), number))
    if as_json:
        console.document(document)
        return
    trial = document["trial"]
    speed = trial["tokens_per_hour"]
    console.line(f"trial {trial['number']} · {trial['kind']} · {trial['state']}")
    console.line(f"outcome  {clean(trial['outcome']['sentence']) if trial['outcome'] else '-'}")
    console.line(f"speed    {'-' if speed is None else f'{rate(speed)} tokens/hour'}, {len(trial['cycles'])} cycles")
    for name, value in trial["configuration"].items():
        changed = "  (changed)" if name in trial["changes"] else ""
        console.line(f"  {clean(name)}: {clean(json.dumps(value))}{changed}")


def best(client: Client, *, study: str | None = None, as_json: bool = False, **_: Any) -> None:
    """The recommendation, or the best so far."""
    document = _plain(client.recommendation(client.find(study)))
    if as_json:
        console.document(document)
        return
    if document["source"] != "recommendation":
        console.say("best so far; the study has not given its recommendation on these trials")
    _best_lines(document["recommendation"])
    for row in document["why"]["rows"] if document["why"] else ():
        _why_lines(row)


def _best_lines(found: Document | None) -> None:
    if found is None or not found["rows"]:
        console.line("best     no trial has succeeded")
        return
    for row in found["rows"]:
        gain = row["gain"]
        over = "" if gain is None or gain["value"] is None else f", {signed_percent(gain['value'])} over the reference"
        sure = "confirmed" if row["confirmed"] else "not confirmed"
        console.line(f"best     {rate(row['tokens_per_hour'])} tokens/hour{over}, {sure} ({clean(row['title'])})")
        for change in row["changes"]:
            console.line(f"  {clean(change)}")


def _why_lines(row: Document) -> None:
    console.line(f"why      {clean(row['title'])}")
    lines = [*row["limits"], *(words for knob in row["knobs"] for words in knob["words"])]
    for words in lines[:MOST_REASONS]:
        console.line(f"  {clean(words)}")
    if len(lines) > MOST_REASONS:
        console.line(f"  {len(lines) - MOST_REASONS} more in --json")


def _plain(shape: BaseModel) -> dict[str, Any]:
    """As the server sent it."""
    return shape.model_dump(mode="json")


ANSWERS: Mapping[str, Callable[..., None]] = {
    "status": status,
    "trials": trials,
    "show": show,
    "best": best,
    "export": export,
}
