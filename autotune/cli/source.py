"""Sources of studies for the reading commands: a local database and home folder, or a server (``--url``)."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import find_study, place_named, reading
from autotune.cli.screens.shell_words import command_line
from autotune.documents.memory_timeline import plain_file
from autotune.domain import Study, Trial
from autotune.errors import UsageError
from autotune.ports import Store
from autotune.recommendation.current import TrialReading, read_trial
from autotune.recommendation.reading import StudyReading, read_study
from autotune.settings import HomePaths, Settings
from trainer.child.contract import NoteRecord

if TYPE_CHECKING:
    from api.client import Client

_URL_HELP = "Read from the `autotune serve` at this address instead; $AUTOTUNE_TOKEN is its token."
UrlOption = Annotated[str | None, typer.Option(metavar="URL", help=_URL_HELP)]


@dataclass(frozen=True)
class Here:
    """The source on this machine."""

    settings: Settings
    store: Store

    @property
    def home(self) -> HomePaths | None:
        """Home folder with the files of studies."""
        return self.settings.home

    def read(self, name: str | None) -> StudyReading:
        """Reads the study with this name or id, or the newest. Raises ``NotFoundError``."""
        gc.disable()  # else it looks again and again at thousands of values, none of which it can free
        try:
            return read_study(self.store, find_study(self.store, name))
        finally:
            gc.freeze()
            gc.enable()

    def trial(self, study: Study, trial: Trial) -> TrialReading:
        return read_trial(self.settings.home, study, trial, self.notes(study.id, trial.number), plain_file)

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        return self.store.notes(study_id, number)

    def command(self, words: str) -> str:
        """Returns ``autotune WORDS`` with the option that reads from the same source."""
        return command_line(words, self.settings)


@dataclass(frozen=True)
class Served:
    """A server as a source; its methods are those of ``Here``."""

    client: Client
    url: str
    home = None

    def read(self, name: str | None) -> StudyReading:
        return self.client.reading(self.client.find(name))

    def trial(self, study: Study, trial: Trial) -> TrialReading:
        return self.client.trial_reading(study.id, trial.number)

    def notes(self, study_id: int, number: int) -> tuple[NoteRecord, ...]:
        return self.client.trial_reading(study_id, number).notes

    def command(self, words: str) -> str:
        return f"autotune {words} --url {shlex.quote(self.url)}"


@contextmanager
def source_at(home: Path | None, url: str | None) -> Iterator[Here | Served]:
    """Opens the server at ``url``, else this machine. Raises ``UsageError`` if ``url`` is invalid or ``--home`` or
    ``--database`` is given too, and ``NotFoundError`` if this machine has no database."""
    if url is None:
        with reading(home) as (settings, store):
            yield Here(settings, store)
        return
    if named := place_named(home):
        raise UsageError(f"--url and {named} name two places; give one of them")
    from api.client import Client

    yield Served(Client(url, os.environ.get("AUTOTUNE_TOKEN", "").strip() or None), url)
