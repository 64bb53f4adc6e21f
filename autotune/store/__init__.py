"""The only room that imports sqlalchemy. ``open_store`` is its door."""

from __future__ import annotations

from pathlib import Path

from autotune.ports import Store
from autotune.store.address import backend_of
from autotune.store.repository import SqlStore

__all__ = ["open_store"]

BUSY_TIMEOUT_S = 10.0
"""Seconds a transaction waits for another process's to end before it gives up."""


def open_store(address: str | Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Store:
    """Open, and on first use create, the database at a path, ``:memory:``, ``sqlite:///`` or ``postgresql://``.

    Raises:
        StoreError: it cannot be opened, is of a newer version, or is no database of ours.
    """
    return SqlStore(backend_of(address, busy_timeout_s))
