"""Converts every database error to one ``StoreError``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from autotune.documents.codec import CodecError
from autotune.errors import StoreError
from autotune.store.backend import Backend


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
