"""What every end-to-end test is followed by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import commands
from tests.e2e.browser import browser


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    commands.end_what_was_begun()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started
