"""Base class of databases: the differences between SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from autotune.documents.codec import CodecError
from autotune.errors import StoreError
from autotune.ports import StudyLock

WRITE = "autotune_write"
"""Execution option of a connection whose next transaction will write."""


class TryAgainError(StoreError):
    """Raised when a transaction changed nothing and may be repeated."""


class Backend:
    """One database: its connection, its locks and its error messages.

    The defaults suit most databases; a subclass defines ``place``, ``engine``, ``study_lock`` and ``explain``.
    """

    remote: bool = False
    """True for a server, which can go away and come back, and whose answer to a commit can be lost."""

    @property
    def place(self) -> str:
        """Name of the database in messages, without a password."""
        raise NotImplementedError

    def engine(self) -> Engine:
        """Returns a new engine; called once."""
        raise NotImplementedError

    def turn(self) -> AbstractContextManager[object]:
        """Returns a context in which one transaction runs, if the threads of this process must take turns."""
        return nullcontext()

    def creation(self, engine: Engine) -> AbstractContextManager[object]:  # noqa: ARG002
        """Returns a context in which one process at a time creates tables. Raises ``StoreError`` after a timeout."""
        return nullcontext()

    def ready(self, engine: Engine) -> bool:  # noqa: ARG002
        """Tells whether the settings of the database itself, tables apart, are correct."""
        return True

    def make_ready(self, engine: Engine) -> None:
        """Makes the settings of the database correct, under ``creation``, when it is not ``ready``."""

    def study_lock(self, engine: Engine, study_id: int, name: str) -> StudyLock:
        """Returns the lock of a study; see ``ports.Store.lock``."""
        raise NotImplementedError

    def guard(self, session: Session) -> None:
        """Checks, in every writing transaction, that this process still holds its study locks.

        Raises:
            StudyBusyError: another tuner has taken over a study.
            StoreError: the database file was deleted or replaced.
        """

    def confirm(self) -> None:
        """Checks, after every commit, that the database file is still in place. Raises ``StoreError``."""

    def lost(self, error: Exception) -> bool:  # noqa: ARG002
        """Tells whether ``error`` means that the server is away, so that a repetition may succeed."""
        return False

    def explain(self, error: Exception) -> str:
        """Explains a driver's error and its remedy in one sentence."""
        raise NotImplementedError


@contextmanager
def explained(backend: Backend) -> Iterator[None]:
    """Converts errors of the driver and values that cannot be stored to ``StoreError``, naming the database."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"{backend.place}: {backend.explain(error)}") from error
    except CodecError as error:
        raise StoreError(f"{backend.place}: {error}; a later autotune may have written it") from error
    except (ValueError, OverflowError) as error:
        if " is not a valid " in str(error):  # a word of an enumeration
            raise StoreError(f"{backend.place}: {error}; a later autotune may have written it") from error
        raise StoreError(f"{backend.place} has no room for a value: {error}") from error
