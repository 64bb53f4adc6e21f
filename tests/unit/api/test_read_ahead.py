"""The newest study is read when a server begins; that never fails the server, and never keeps it from ending."""

from __future__ import annotations

import threading
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from api.cache.study import SLICE
from api.read_ahead import NAME
from api.serving import Address, Serving, serving
from autotune import wiring
from autotune.domain import Study, Trial
from autotune.errors import StoreError
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.waiting import PATIENCE_S, wait_for


@dataclass
class How:
    """The way reading trials goes."""

    error: Exception | None = None
    endless: bool = False


class Watched:
    """A store that counts how often trials are read."""

    def __init__(self, settings: Settings, how: How) -> None:
        self._store, self._how = open_store(settings.database), how
        self.reads, self.closed = 0, False

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> tuple[Trial, ...]:
        self.reads += 1
        if self._how.error is not None:
            raise self._how.error
        if not self._how.endless:
            return self._store.trials(study_id, since, until)
        time.sleep(0.01)
        if self.closed:
            raise StoreError("it has been closed")
        return (factories.finished(0),) * SLICE

    def close(self) -> None:
        self.closed = True
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


Stores = list[Watched]


@pytest.fixture
def how() -> How:
    return How()


@pytest.fixture
def stores(settings: Settings, how: How, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Those a server has opened."""
    made: Stores = []

    def opened(_: Settings) -> Watched:
        made.append(Watched(settings, how))
        return made[-1]

    monkeypatch.setattr(wiring, "open_to_read", opened)
    return made


def reading() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == NAME]


def get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
        answer.read()
        return int(answer.status)


def begun(settings: Settings, said: list[str]) -> Serving:
    return Serving(settings, said.append, Address(port=0), read_ahead=True)


def test_the_first_pages_are_answered_from_what_was_read_before(
    settings: Settings, study: Study, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    server = begun(settings, said)
    wait_for(lambda: not reading())
    (store,) = stores
    assert store.reads == 1

    def drawn(*given: Any, **named: Any) -> bytes:
        raise AssertionError("the page was there already")

    monkeypatch.setattr("api.routes.pages.render", drawn)
    monkeypatch.setattr("api.routes.study_pages.render", drawn)
    for path in ("/studies/1", "/studies/1/why", "/api/v1/studies/1/trials"):
        assert get(server.url + path) == 200
    assert store.reads == 1
    server.close()
    assert store.closed
    assert said == []


def test_closing_while_it_reads_leaves_no_thread_and_nothing_open(
    settings: Settings, study: Study, stores: Stores, how: How
) -> None:
    how.endless = True
    said: list[str] = []
    server = begun(settings, said)
    wait_for(lambda: stores and stores[0].reads > 3)
    assert get(f"{server.url}/healthz") == 200
    assert get(f"{server.url}/readyz") == 200, "the database can be read; whoever asks is answered, if not at once"
    assert reading() != []
    server.close()
    assert reading() == []
    assert all(store.closed for store in stores)
    assert said == []


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreError("the disk is gone"), "the newest study was not read ahead: the disk is gone"),
        (ValueError("broken"), "the page met an unexpected ValueError; the details are in "),
    ],
)
def test_a_reading_that_fails_is_told_and_harms_nothing(
    settings: Settings, study: Study, stores: Stores, how: How, error: Exception, sentence: str
) -> None:
    how.error = error
    said: list[str] = []
    server = begun(settings, said)
    wait_for(lambda: not reading())
    assert len(said) == 1
    assert said[0].startswith(sentence)
    how.error = None
    assert get(f"{server.url}/studies/1") == 200
    server.close()


def test_without_a_database_there_is_nothing_to_read_and_none_is_made(settings: Settings, stores: Stores) -> None:
    said: list[str] = []
    server = begun(settings, said)
    wait_for(lambda: not reading())
    server.close()
    assert (said, stores) == ([], [])
    assert not settings.home.database.exists()


def test_beside_a_running_study_nothing_is_read_before_somebody_asks(
    settings: Settings, study: Study, stores: Stores
) -> None:
    """Its own process would wait for the interpreter while a study of long ago is read."""
    with serving(settings, print, port=0) as url:
        assert url is not None
        assert get(f"{url}/healthz") == 200
        assert (reading(), stores) == ([], [])
        assert get(f"{url}/studies/1") == 200
        assert stores[0].reads == 1
