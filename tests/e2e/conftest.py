"""What every end-to-end test is followed by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import commands


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    commands.end_what_was_begun()
