"""``--database``: given to every command that has ``--home``, since both say where studies are kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from autotune.cli.options import naming_database

_HELP = (
    "PostgreSQL address without its password (PGPASSWORD or ~/.pgpass has that), or a SQLite file; "
    "goes before $AUTOTUNE_DATABASE."
)
_OPTION = Annotated[str | None, typer.Option(metavar="URL", help=_HELP)]


def add_database_option(app: typer.Typer) -> None:
    """To all commands registered so far that have a parameter ``home``."""
    for command in app.registered_commands:
        if command.callback is not None and "home" in inspect.signature(command.callback).parameters:
            command.callback = _with_database(command.callback)


def _with_database(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*arguments: Any, database: str | None = None, **options: Any) -> Any:
        with naming_database(database):
            return command(*arguments, **options)

    shape = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("database", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTION)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shape.parameters.values()]
    run.__signature__ = shape.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*parameters, option)}
    return run
