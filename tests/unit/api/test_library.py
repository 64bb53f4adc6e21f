"""Many readers cost what one costs, and all of them little."""

import threading
import time
from functools import partial
from typing import Any

from api.library import KEPT_BODIES, Library
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests import factories
from tests.recorded import record


class Counting:
    """A store that counts how often trials are read, and takes its time."""

    def __init__(self, settings: Settings, slow: float = 0.0) -> None:
        self._store, self._slow, self.reads = open_store(settings.database), slow, 0

    def trials(self, study_id: int) -> Any:
        self.reads += 1
        time.sleep(self._slow)
        return self._store.trials(study_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def change(settings: Settings, study: Study, number: int) -> None:
    store = open_store(settings.database)
    record(store, study, factories.finished(number, configuration=factories.numbered(number)))
    store.close()


def test_an_unchanged_study_is_read_once(settings: Settings, study: Study) -> None:
    store = Counting(settings)
    library = Library(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    first = library.snapshot(study.id)
    assert all(library.snapshot(study.id) is first for _ in range(20))
    assert store.reads == 1
    change(settings, study, 5)
    assert len(library.snapshot(study.id).trials) == 6
    assert store.reads == 2
    library.close()


def test_readers_at_once_share_one_reading(settings: Settings, study: Study) -> None:
    store = Counting(settings, slow=0.2)
    library = Library(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    threads = [threading.Thread(target=library.snapshot, args=(study.id,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.reads == 1
    library.close()


def test_a_study_that_always_changes_is_not_always_read(settings: Settings, study: Study) -> None:
    """While trials run it changes every second; reading it each time would take from what is measured."""
    store = Counting(settings, slow=0.05)
    library = Library(settings, lambda: store, patience=1000.0)  # type: ignore[arg-type, return-value]
    for number in range(5, 10):
        library.snapshot(study.id)
        change(settings, study, number)
    assert store.reads == 1
    library.close()


def test_another_study_is_another_reading(settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    other = store.create_study(factories.study_spec("other"), factories.NOW)
    store.close()
    library = Library(settings, partial(open_store, settings.database), patience=1000.0)
    assert len(library.snapshot(study.id).trials) == 5
    assert library.snapshot(other.id).trials == ()
    assert library.snapshot(study.id).stamp != library.snapshot(other.id).stamp
    library.close()


def test_what_was_built_is_built_once_and_not_kept_for_ever(settings: Settings) -> None:
    library = Library(settings, partial(open_store, settings.database))
    built: list[int] = []

    def build(number: int) -> bytes:
        built.append(number)
        return b"%d" % number

    for _ in range(3):
        assert library.body("key", lambda: build(0)) == b"0"
    assert built == [0]
    for number in range(1, KEPT_BODIES + 1):
        library.body(number, partial(build, number))
    library.body("key", lambda: build(0))
    assert built.count(0) == 2


def test_a_closed_library_can_be_closed_again(settings: Settings, study: Study) -> None:
    library = Library(settings, partial(open_store, settings.database))
    library.snapshot(study.id)
    library.close()
    library.close()
