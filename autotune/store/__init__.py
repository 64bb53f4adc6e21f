"""The database of studies; the only package that imports sqlalchemy. ``open_store`` opens it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import StoreError, UnfitDatabaseError
from autotune.machine.clock import SystemClock
from autotune.ports import Clock, StopToken, Store
from autotune.store.backend import Backend
from autotune.store.postgresql import Postgresql
from autotune.store.repository import SqlStore
from autotune.store.sqlite import SqliteFile, SqliteMemory, check_place
from autotune.store.transactions import OutageLimits, Talk

BUSY_TIMEOUT_S = 10.0
"""Longest time, in seconds, that a transaction waits for another process's transaction."""
READERS_PATIENCE = OutageLimits(total_s=5.0)
"""Limits on waiting for a server that is away, for readers, who need an answer soon."""


def open_store(
    address: str | Path,
    *,
    create: bool = True,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    patience: OutageLimits | None = None,
    clock: Clock | None = None,
    talk: Talk | None = None,
    stop: StopToken | None = None,
) -> Store:
    """Opens the database at a path, ``:memory:``, ``sqlite:///`` or ``postgresql://``; creates it on first use.

    A SQLite file that cannot be written, as on a read-only mount, is opened for reading.

    Args:
        create: create the file, its folder and the tables if they are missing; without it a missing one is an error.
        busy_timeout_s: longest wait of a transaction for another process's, in seconds.
        patience: how long, once the store is open, a server may be away and another process may keep a file locked;
            opening does not wait for a server.
        talk: receives a sentence when a server goes away or comes back; a log warning by default.
        stop: at level 2 calls no longer wait for a server.

    Raises:
        UnfitDatabaseError: the file cannot be opened or created, or the database is of another version or application.
        NoDatabaseError: the database does not exist and ``create`` is off.
        StoreError: the server does not answer or refuses the login.
    """
    backend = backend_of(address, busy_timeout_s, create=create)
    try:
        return SqlStore(
            backend,
            patience or OutageLimits(),
            clock or SystemClock(),
            talk or logging.getLogger(__name__).warning,
            stop,
            create=create,
        )
    except StoreError as error:
        if backend.remote or isinstance(error, UnfitDatabaseError):
            raise
        raise UnfitDatabaseError(str(error)) from error


_DRIVER = "postgresql+psycopg"
_MEMORY = (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


def backend_of(address: str | Path, busy_timeout_s: float, *, create: bool = True) -> Backend:
    """Returns the backend of ``address``: a path, ``:memory:``, ``sqlite:///path`` or ``postgresql://...``.

    Raises ``UnfitDatabaseError``. Its message never repeats the address, which may hold a password.
    """
    if isinstance(address, Path) or "://" not in address:
        if str(address) == ":memory:":
            return SqliteMemory()
        if not str(address).strip():
            raise UnfitDatabaseError("the database has no name; give a file, or a postgresql:// address")
        return SqliteFile(Path(os.path.expanduser(address)).absolute(), busy_timeout_s, create=create)
    if address in _MEMORY:
        return SqliteMemory()
    url = _parsed(address)
    backend = url.get_backend_name()
    if backend == "postgresql":
        return Postgresql(url)
    if backend != "sqlite":
        raise UnfitDatabaseError(f"studies are kept in SQLite or PostgreSQL, not in {backend}")
    if url.query or not url.database:
        raise UnfitDatabaseError(
            "a SQLite database is named by its path alone: sqlite:////folder/file.db, without options"
        )
    return SqliteFile(Path(url.database).absolute(), busy_timeout_s, create=create)


def _parsed(address: str) -> URL:
    if address.startswith("postgres://"):
        address = "postgresql://" + address.removeprefix("postgres://")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        # Not chained: the parser's own message may hold a piece of the password.
        raise UnfitDatabaseError(
            "the database address cannot be read; it is written postgresql://user:password@host:port/database, "
            "with :, @ and / in the password as %3A, %40 and %2F"
        ) from None
    if url.get_backend_name() == "postgresql" and url.drivername not in ("postgresql", _DRIVER):
        raise UnfitDatabaseError(
            f"PostgreSQL is reached by psycopg, not by {url.get_driver_name()}; write postgresql:// in the address"
        )
    if url.drivername == "postgresql":
        url = url.set(drivername=_DRIVER)
    return url
