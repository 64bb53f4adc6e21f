"""What the integration tests share: a PostgreSQL server, and processes that trials are forked from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.running.preloaded import Preloads, PreloadTimeouts
from tests.support.postgresql import Server, server
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server that stays up; a test that stops it makes one of its own."""
    with server() as made:
        yield made


@pytest.fixture
def address(postgresql: Server) -> Iterator[str]:
    """An empty database; dropped afterwards, because each takes 8 MB."""
    made = postgresql.new_database()
    yield made
    postgresql.drop(made)


@pytest.fixture(scope="module")
def preloads() -> Iterator[Preloads]:
    """For the trials of a module that could as well be started: they import once."""
    made = Preloads(PreloadTimeouts(ready_s=PATIENCE_S, answer_s=PATIENCE_S))
    yield made
    made.close()
