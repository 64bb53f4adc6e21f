"""Many readers cost what one costs, and all of them little."""

import threading
from collections import Counter
from functools import partial
from typing import Any

from api.cache import KEPT_BODIES, StudyCache, progress, settled
from autotune.domain import Study, TrialState
from autotune.errors import StoreError
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.support.waiting import PATIENCE_S, wait_for


class Counting:
    """A store that counts how often trials are read, and is held up until ``free`` is set."""

    def __init__(self, settings: Settings) -> None:
        self._store, self.reads, self.rows = open_store(settings.database), 0, 0
        self.free = threading.Event()
        self.free.set()
        self.asked: list[tuple[int, int | None]] = []

    def trials(self, study_id: int, since: int = 0, until: int | None = None) -> Any:
        self.reads += 1
        assert self.free.wait(PATIENCE_S)
        self.asked.append((since, until))
        found = self._store.trials(study_id, since, until)
        self.rows += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def change(settings: Settings, study: Study, number: int) -> None:
    store = open_store(settings.database)
    record(store, study, factories.finished(number, configuration=factories.numbered(number)))
    store.close()


def test_an_unchanged_study_is_read_once(settings: Settings, study: Study) -> None:
    store = Counting(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    first = cache.snapshot(study.id)
    assert all(cache.snapshot(study.id) is first for _ in range(20))
    assert store.reads == 1
    change(settings, study, 5)
    assert len(cache.snapshot(study.id).trials) == 6
    assert store.reads == 2
    cache.close()


def test_readers_at_once_share_one_reading(settings: Settings, study: Study) -> None:
    store = Counting(settings)
    store.free.clear()
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    threads = [threading.Thread(target=cache.snapshot, args=(study.id,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    wait_for(lambda: store.reads, "the reading")
    store.free.set()
    for thread in threads:
        thread.join()
    assert store.reads == 1
    cache.close()


def test_a_study_that_always_changes_is_not_always_read(settings: Settings, study: Study) -> None:
    """While trials run it changes every second; reading it each time would take from what is measured."""
    store = Counting(settings)
    cache = StudyCache(settings, lambda: store, patience=1e6)  # type: ignore[arg-type, return-value]
    for number in range(5, 10):
        cache.snapshot(study.id)
        change(settings, study, number)
    assert store.reads == 1
    cache.close()


def test_a_trial_that_has_ended_is_never_read_again(settings: Settings, study: Study) -> None:
    store = Counting(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    cache.snapshot(study.id)
    assert store.rows == 5
    change(settings, study, 5)
    assert len(cache.snapshot(study.id).trials) == 6
    assert store.rows == 5 + 3, "trial 3 runs and 4 waits; from 3 on all are read"
    direct = open_store(settings.database)
    direct.start_attempt(study.id, 4, factories.NOW)
    for number in (3, 4):
        outcome = factories.oom()
        direct.finish_trial(study.id, number, TrialState.FAIL, outcome, factories.NOW + 1, 1.0, None)
    assert cache.snapshot(study.id).trials == direct.trials(study.id)
    before = store.rows
    change(settings, study, 6)
    found = cache.snapshot(study.id)
    assert store.rows == before + 1
    assert found.trials == direct.trials(study.id)
    direct.close()
    cache.close()


def test_while_one_reads_the_others_are_given_the_reading_before(settings: Settings, study: Study) -> None:
    store = Counting(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    first = cache.snapshot(study.id)
    change(settings, study, 5)
    store.free.clear()
    reading = threading.Thread(target=cache.snapshot, args=(study.id,))
    reading.start()
    wait_for(lambda: store.reads == 2, "the second reading")
    assert cache.snapshot(study.id) is first
    store.free.set()
    reading.join()
    assert len(cache.snapshot(study.id).trials) == 6
    cache.close()


def test_spending_alone_is_no_progress(settings: Settings, study: Study) -> None:
    """Every second of a running study changes its spending; lists of its trials stay what they are."""
    cache = StudyCache(settings, partial(open_store, settings.database), patience=0.0)
    first = cache.snapshot(study.id)
    store = open_store(settings.database)
    store.spend(store.open_session(study.id, 1.0), 5.0, 0.0, 2.0)
    second = cache.snapshot(study.id)
    assert second.spent[0] == first.spent[0] + 5.0
    assert progress(second) == progress(first)
    store.add_cycle(study.id, 3, 1, factories.cycle(0))
    third = cache.snapshot(study.id)
    assert progress(third) != progress(second)
    assert settled(third) == settled(second), "the answer rests on trials that have ended"
    change(settings, study, 5)
    assert settled(cache.snapshot(study.id)) != settled(third)
    store.close()
    cache.close()


def test_another_study_is_another_reading(settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    other = store.create_study(factories.study_spec("other"), factories.NOW)
    store.close()
    cache = StudyCache(settings, partial(open_store, settings.database), patience=1000.0)
    assert len(cache.snapshot(study.id).trials) == 5
    assert cache.snapshot(other.id).trials == ()
    assert settled(cache.snapshot(study.id)) != settled(cache.snapshot(other.id))
    cache.close()


def test_what_was_built_is_built_once_and_not_kept_for_ever(settings: Settings) -> None:
    cache = StudyCache(settings, partial(open_store, settings.database))
    built: list[int] = []

    def build(number: int) -> bytes:
        built.append(number)
        return b"%d" % number

    for _ in range(3):
        assert cache.cached("key", lambda: build(0)) == b"0"
    assert built == [0]
    for number in range(1, KEPT_BODIES + 1):
        cache.cached(number, partial(build, number))
    cache.cached("key", lambda: build(0))
    assert built.count(0) == 2


def test_those_who_wait_for_a_body_get_it_or_its_error_and_the_next_tries_again(settings: Settings) -> None:
    cache = StudyCache(settings, partial(open_store, settings.database))
    begun, go_on, got = threading.Event(), threading.Event(), list[object]()

    def fails() -> bytes:
        begun.set()
        go_on.wait(PATIENCE_S)
        raise StoreError("gone")

    def asks() -> None:
        try:
            got.append(cache.cached("key", fails))
        except StoreError as error:
            got.append(str(error))

    threads = [threading.Thread(target=asks) for _ in range(3)]
    threads[0].start()
    assert begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert got == ["gone"] * 3
    assert cache.cached("key", lambda: b"again") == b"again"


def test_a_closed_library_can_be_closed_again(settings: Settings, study: Study) -> None:
    cache = StudyCache(settings, partial(open_store, settings.database))
    cache.snapshot(study.id)
    cache.close()
    cache.close()


class Asked:
    """A store that counts what is asked of it, by name."""

    def __init__(self, settings: Settings) -> None:
        self._store, self.calls = open_store(settings.database), Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def asking(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return found(*given, **named)

        return asking


def many_studies(settings: Settings, count: int) -> None:
    store = open_store(settings.database)
    for number in range(count):
        store.create_study(factories.study_spec(f"study {number}", seed=number), factories.NOW + number)
    store.close()


def test_a_list_of_studies_is_one_query_however_many_there_are(settings: Settings) -> None:
    many_studies(settings, 24)
    store = Asked(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    found = cache.studies()
    assert [study.spec.name for study in found] == [f"study {n}" for n in reversed(range(24))]
    assert (store.calls["studies"], store.calls["study"]) == (1, 0)
    assert cache.studies() == found
    assert (store.calls["studies"], store.calls["study"]) == (1, 0), "what has not changed is not read again"
    other = open_store(settings.database)
    other.add_event(found[3].id, factories.event())
    other.close()
    assert cache.studies()[3].revision > found[3].revision
    assert (store.calls["studies"], store.calls["study"]) == (1, 1), "of one that has changed only that one"
    cache.close()


def test_a_gpu_that_is_not_known_is_not_asked_for_by_every_reader(settings: Settings, study: Study) -> None:
    store = Asked(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    for _ in range(5):
        assert cache.gpu_names() == {study.id: ""}
    assert store.calls["fingerprint"] == 1
    other = open_store(settings.database)
    other.save_fingerprint(study.id, factories.fingerprint(hardware={"gpus": [{"name": "NVIDIA H200"}]}), factories.NOW)
    other.add_event(study.id, factories.event())
    other.close()
    for _ in range(5):
        assert cache.gpu_names() == {study.id: "NVIDIA H200"}
    assert store.calls["fingerprint"] == 2
    cache.close()
