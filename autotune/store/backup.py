"""A copy of a SQLite database beside it, made before anything in it is changed for good."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

from autotune.errors import StoreError


def keep_copy(path: Path, version: str) -> Path:
    """Copy the database at ``path`` to ``<name>.r<version>.bak``, or ``.r<version>.2.bak`` ... if that is there.

    The caller keeps other processes of ours from doing the same at once. The copy is whole and checked when it
    gets its name, and no file is ever overwritten.

    Raises:
        StoreError: the copy is not sound.
        OSError, sqlite3.Error: it could not be written.
    """
    partial = path.with_name(f"{path.name}.copying-{os.getpid()}")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shutil.copymode(path, partial)
        _copy(path, partial)
        target = _free_name(path, version)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _copy(path: Path, partial: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the one file is all of it
        found = copy.execute("PRAGMA integrity_check").fetchone()[0]
    if found != "ok":
        raise StoreError(f"database {path} is not migrated, because its copy is damaged ({found})")
    with partial.open("rb") as written:
        os.fsync(written.fileno())


def _free_name(path: Path, version: str) -> Path:
    for number in count(1):
        name = f"{path.name}.r{version}" + (".bak" if number == 1 else f".{number}.bak")
        if not path.with_name(name).exists():
            return path.with_name(name)
    raise AssertionError("numbers do not end")
