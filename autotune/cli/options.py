"""Code that the reading commands share: options, settings, the store, and finding a study or a trial."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import console
from autotune.domain import Study
from autotune.errors import NotFoundError
from autotune.ports import StopToken, Store
from autotune.recommendation.reading import named_study
from autotune.settings import DATABASE_VARIABLE, Settings, read_settings

HomeOption = Annotated[
    Path | None, typer.Option(help="Folder with the database and the runs; overrides $AUTOTUNE_HOME.", metavar="DIR")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout instead of text.")]
StudyArgument = Annotated[
    str | None, typer.Argument(metavar="STUDY", help="Name or id of a study. Default: the newest.")
]
TrialArgument = Annotated[
    int, typer.Argument(metavar="N", min=0, help="Number of the trial, as `autotune trials` shows it.")
]

_last: ContextVar[Settings | None] = ContextVar("last_settings", default=None)
_database: ContextVar[str | None] = ContextVar("named_database", default=None)


def place_named(home: Path | None) -> str:
    """Returns the given option of ``--home`` and ``--database``; empty if neither is given."""
    return "--home" if home is not None else "--database" if _database.get() is not None else ""


def settings_for(home: Path | None) -> Settings:
    """Returns the environment's settings with ``--home`` and ``--database``, and keeps them for crash files. Raises
    ``UsageError`` if ``home`` cannot be a folder, or the database address contains a password."""
    settings = read_settings(home=home, database=_database.get())
    if home and not (settings.own_database or _database.get()) and settings.home.database.exists():
        console.say(f"${DATABASE_VARIABLE} names another database than the one in --home: that one is used")
    _last.set(settings)
    return settings


def forget_settings() -> None:
    """Forgets the settings of an earlier command line in this process."""
    _last.set(None)


def settings_in_use() -> Settings:
    """Returns the settings of the running command, else those of the environment."""
    return _last.get() or read_settings()


@contextmanager
def reading(home: Path | None, stop: StopToken | None = None) -> Iterator[tuple[Settings, Store]]:
    """Opens the store for reading or, with ``stop``, for running trials of an existing study. Raises ``NotFoundError``
    if there is no database; creates none."""
    settings = settings_for(home)
    if settings.own_database and not settings.home.database.exists():
        raise NotFoundError(f"there is no study in {settings.home.root} yet; `autotune start` begins one")
    with closing(_opened(settings, stop)) as store:
        yield settings, store


def _opened(settings: Settings, stop: StopToken | None) -> Store:
    if stop is not None:
        from autotune.wiring import open_store_for

        return open_store_for(settings, stop, create=False)
    from autotune.store import READERS_PATIENCE, open_store

    return open_store(settings.database, create=False, patience=READERS_PATIENCE)


def find_study(store: Store, name: str | None) -> Study:
    """Returns the study with this name or id, or the newest. Raises ``NotFoundError`` with the most similar name."""
    studies = store.studies()
    found = named_study([(study.id, study.spec.name) for study in studies], name)
    return next(study for study in studies if study.id == found)


_DATABASE_HELP = (
    "PostgreSQL address without its password (set that in PGPASSWORD or ~/.pgpass), or a SQLite file; "
    "overrides $AUTOTUNE_DATABASE."
)
_DATABASE = Annotated[str | None, typer.Option(metavar="URL", help=_DATABASE_HELP)]


def add_database_option(app: typer.Typer) -> None:
    """Adds ``--database`` to all registered commands that have ``--home``."""
    for command in app.registered_commands:
        if command.callback is not None and "home" in inspect.signature(command.callback).parameters:
            command.callback = _with_database(command.callback)


def _with_database(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*arguments: Any, database: str | None = None, **options: Any) -> Any:
        before = _database.set(database)
        try:
            return command(*arguments, **options)
        finally:
            _database.reset(before)

    shape = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("database", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_DATABASE)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shape.parameters.values()]
    run.__signature__ = shape.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*parameters, option)}
    return run
