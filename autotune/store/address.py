"""Parses a database address."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import UnfitDatabaseError
from autotune.store.backend import Backend
from autotune.store.postgresql import Postgresql
from autotune.store.sqlite import SqliteFile, SqliteMemory

_DRIVER = "postgresql+psycopg"
_MEMORY = (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


def backend_of(address: str | Path, busy_timeout_s: float, *, create: bool = True) -> Backend:
    """The database ``address`` names: a path, ``:memory:``, ``sqlite:///path`` or ``postgresql://...``.

    Raises:
        UnfitDatabaseError: it is none of them; the message never repeats the address, which may hold a password.
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
