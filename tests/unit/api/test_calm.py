"""Pages are drawn ahead for readers who may come, and never at the cost of those who are there."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api import read_ahead
from api.cache.studies import StudyCache
from api.read_ahead import CALM_S, ReadAhead
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests.support.waiting import PATIENCE_S


class Asked:
    """A library of one study, asked for now and again by somebody else."""

    def __init__(self) -> None:
        self.unasked_s = 0.0
        self.read = threading.Event()

    def look(self) -> tuple[float, dict[int, int]]:
        return 0.0, {1: 1}

    def snapshot(self, study: int) -> None:
        self.read.set()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages, as they are drawn."""
    pages: list[str] = []
    monkeypatch.setattr(read_ahead, "work_out", lambda *_: pages.append("answer"))
    monkeypatch.setattr(read_ahead, "study_page", lambda *_: pages.append("study"))
    monkeypatch.setattr(read_ahead, "why_page", lambda *_: pages.append("why"))
    return pages


def begun(cache: Any) -> ReadAhead:
    failures: list[Exception] = []
    reading = ReadAhead(cache, failures.append)
    reading.start()
    assert cache.read.wait(PATIENCE_S)
    assert failures == []
    return reading


def test_nothing_is_drawn_while_somebody_asks_and_everything_afterwards(drawn: list[str]) -> None:
    cache = Asked()
    reading = begun(cache)
    reading.wait(3 * CALM_S)
    assert drawn == []
    cache.unasked_s = CALM_S
    reading.wait(PATIENCE_S)
    assert drawn == ["answer", "study", "why"]


def test_it_ends_though_somebody_asks_all_the_time(drawn: list[str]) -> None:
    reading = begun(Asked())
    reading.stop()
    reading.wait(PATIENCE_S)
    assert drawn == []
    assert not [t for t in threading.enumerate() if t.name == read_ahead.NAME]


def test_a_library_knows_since_when_nobody_has_asked(settings: Settings, study: Study) -> None:
    cache = StudyCache(settings, lambda: open_store(settings.database))
    assert cache.unasked_s == float("inf")
    cache.revisions()
    assert cache.unasked_s == float("inf"), "looking for news is not asking for a study"
    cache.snapshot(study.id)
    assert 0 <= cache.unasked_s < 60
    cache.close()


def test_who_asks_while_something_is_made_waits_for_it(settings: Settings) -> None:
    cache = StudyCache(settings, lambda: open_store(settings.database))
    began, go, made = threading.Event(), threading.Event(), list[str]()

    def build() -> bytes:
        made.append("once")
        began.set()
        assert go.wait(PATIENCE_S)
        return b"page"

    found: list[bytes] = []
    readers = [threading.Thread(target=lambda: found.append(cache.kept("key", build))) for _ in range(4)]
    readers[0].start()
    assert began.wait(PATIENCE_S)
    for reader in readers[1:]:
        reader.start()
    assert cache.kept("another", lambda: b"other") == b"other", "nobody waits for what is made under another key"
    go.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert (found, made) == ([b"page"] * 4, ["once"])


def test_what_failed_is_made_again_by_the_next(settings: Settings) -> None:
    cache = StudyCache(settings, lambda: open_store(settings.database))

    def broken() -> bytes:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        cache.kept("key", broken)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(cache.kept("key", lambda: b"page")), daemon=True)
    reader.start()
    reader.join(PATIENCE_S)
    assert found == [b"page"]
