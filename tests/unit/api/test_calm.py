"""What is made for readers is made once."""

from __future__ import annotations

import threading

import pytest

from api.cache import StudyCache
from autotune.settings import Settings
from autotune.store import open_store
from tests.support.waiting import PATIENCE_S


def test_who_asks_while_something_is_made_waits_for_it(settings: Settings) -> None:
    cache = StudyCache(settings, lambda: open_store(settings.database))
    began, go, made = threading.Event(), threading.Event(), list[str]()

    def build() -> bytes:
        made.append("once")
        began.set()
        assert go.wait(PATIENCE_S)
        return b"page"

    found: list[bytes] = []
    readers = [threading.Thread(target=lambda: found.append(cache.cached("key", build))) for _ in range(4)]
    readers[0].start()
    assert began.wait(PATIENCE_S)
    for reader in readers[1:]:
        reader.start()
    assert cache.cached("another", lambda: b"other") == b"other", "nobody waits for what is made under another key"
    go.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert (found, made) == ([b"page"] * 4, ["once"])


def test_what_failed_is_made_again_by_the_next(settings: Settings) -> None:
    cache = StudyCache(settings, lambda: open_store(settings.database))

    def broken() -> bytes:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        cache.cached("key", broken)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(cache.cached("key", lambda: b"page")), daemon=True)
    reader.start()
    reader.join(PATIENCE_S)
    assert found == [b"page"]
