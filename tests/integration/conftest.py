"""What the integration tests share: one PostgreSQL server for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgresql import Server, server


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
