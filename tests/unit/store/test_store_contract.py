"""The store's contract on every database it runs on; another one is one more line in ``ADDRESSES``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from autotune.ports import Store
from autotune.store import open_store
from tests.contracts.store_machine import StoreMachine, play
from tests.contracts.store_processes import SharedStoreSuite
from tests.contracts.store_suite import StoreSuite

ADDRESSES: Mapping[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / "home" / "studies.db"),
    "memory": lambda folder: ":memory:",
}
SHARED = ["file"]
"""Those that another process can open too."""


@pytest.fixture(params=ADDRESSES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(ADDRESSES[request.param](tmp_path))
    yield opened
    opened.close()


@pytest.fixture(params=SHARED)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ADDRESSES[request.param](tmp_path)


class TestStore(StoreSuite):
    pass


class TestSharedStore(SharedStoreSuite):
    def check_integrity(self, address: str) -> None:
        with closing(sqlite3.connect(address)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


class MemoryMachine(StoreMachine):
    def open_empty(self) -> Store:
        return open_store(":memory:")


def test_random_histories() -> None:
    play(MemoryMachine)
