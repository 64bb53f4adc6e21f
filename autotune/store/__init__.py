"""The database, the only room that imports sqlalchemy. ``open_store`` opens it."""

from __future__ import annotations

import logging
from pathlib import Path

from autotune.errors import StoreError, UnfitDatabaseError
from autotune.machine.clock import SystemClock
from autotune.ports import Clock, StopToken, Store
from autotune.store.address import backend_of
from autotune.store.patience import OutageLimits, Talk
from autotune.store.places import check_place
from autotune.store.repository import SqlStore

BUSY_TIMEOUT_S = 10.0
"""Seconds a transaction waits for another process's to end before it gives up."""


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
    """Open, and on first use create, the database at a path, ``:memory:``, ``sqlite:///`` or ``postgresql://``.

    A SQLite file that cannot be written, as on a read-only mount, is opened for reading.

    Args:
        create: make the file, its folder and the tables if they are not there; without it their absence is an error.
        busy_timeout_s: how long a transaction waits for another process's to end.
        patience: how long a server may be away once the store is open, and another process may keep a file locked; a
            server that is away is not waited for while opening.
        talk: told in a sentence of a migration, and of a server that is away or back; standard error unless told.
        stop: at level 2 a server that is away is not waited for any longer.

    Raises:
        UnfitDatabaseError: a file that cannot be opened or made; a database of a newer version, or none of ours.
        NoDatabaseError: without ``create``, none is there.
        StoreError: a server that does not answer or lets nobody in.
        StudyBusyError: it must be migrated, and a tuner is running a study in it.
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
