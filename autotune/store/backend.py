"""The differences between SQLite and PostgreSQL; the rest of this room is the same for both."""

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
    """The transaction changed nothing and may be repeated."""


class Backend:
    """One database: how to reach it, how to lock it, and how to say what is wrong with it.

    What most databases have in common is here; a subclass gives ``place``, ``engine``, ``study_lock`` and
    ``explain``.
    """

    remote: bool = False
    """A server that can go away and come back, and whose answer to a commit can be lost."""

    @property
    def place(self) -> str:
        """The database as messages name it; never with a password."""
        raise NotImplementedError

    def engine(self) -> Engine:
        """A new engine; called once."""
        raise NotImplementedError

    def turn(self) -> AbstractContextManager[object]:
        """Held around every transaction, where the threads of this process must take turns."""
        return nullcontext()

    def creation(self, engine: Engine) -> AbstractContextManager[object]:  # noqa: ARG002
        """Held by the one process that makes the tables. Raises ``StoreError``: another has held it for too long."""
        return nullcontext()

    def ready(self, engine: Engine) -> bool:  # noqa: ARG002
        """Whether the database's own settings (not its tables) are as they must be."""
        return True

    def make_ready(self, engine: Engine) -> None:
        """Called under ``creation`` when not ``ready``."""

    def study_lock(self, engine: Engine, study_id: int, name: str) -> StudyLock:
        """See ``ports.Store.lock``."""
        raise NotImplementedError

    def guard(self, session: Session) -> None:
        """Called in every writing transaction: the study locks this process holds are still its own.

        Raises:
            StudyBusyError: another tuner has taken a study over.
            StoreError: what is written to is no longer where others look for it.
        """

    def confirm(self) -> None:
        """Called after every commit: what was written is where others look for it. Raises ``StoreError``."""

    def lost(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether ``error`` means that the server is away, so that a repetition may succeed."""
        return False

    def explain(self, error: Exception) -> str:
        """A sentence on the meaning of a driver's error and its remedy."""
        raise NotImplementedError


@contextmanager
def explained(backend: Backend) -> Iterator[None]:
    """Raise ``StoreError`` naming the database, for what the driver or a value that does not fit raised."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"{backend.place}: {backend.explain(error)}") from error
    except CodecError as error:
        raise StoreError(f"{backend.place}: {error}") from error
    except (ValueError, OverflowError) as error:
        raise StoreError(f"{backend.place} has no room for a value: {error}") from error
