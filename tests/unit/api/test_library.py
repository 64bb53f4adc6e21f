"""Many readers cost what one costs, and all of them little."""

import gc
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from api.cache.studies import FEW, KEPT_BODIES, StudyCache
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


@pytest.mark.parametrize("large", [True, False])
def test_the_collector_leaves_alone_what_took_long_to_read(
    large: bool, settings: Settings, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cache.study.LARGE_S", -1.0 if large else 60.0)
    gc.unfreeze()
    cache = StudyCache(settings, lambda: Counting(settings))  # type: ignore[arg-type, return-value]
    try:
        found = cache.snapshot(study.id)
        assert (gc.get_freeze_count() > 0) is large
        assert any(kept is found for kept in gc.get_objects()) is not large
    finally:
        gc.unfreeze()
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


def test_a_large_study_is_read_in_slices_and_what_may_change_at_one_moment(
    settings: Settings, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long transaction keeps the writer's log growing; two trials read at different times may both seem to run."""
    monkeypatch.setattr("api.cache.study.SLICE", 2)
    store = Counting(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    found = cache.snapshot(study.id)
    assert store.asked == [(0, 2), (2, 4), (3, None)]
    direct = open_store(settings.database)
    assert found.trials == direct.trials(study.id)
    direct.start_attempt(study.id, 4, factories.NOW)
    for number in (3, 4):
        direct.finish_trial(study.id, number, TrialState.FAIL, factories.oom(), factories.NOW + 1, 1.0, None)
    for number in range(5, 8):
        change(settings, study, number)
    assert cache.snapshot(study.id).trials == direct.trials(study.id)
    assert store.asked[3:] == [(3, 5), (5, 7), (7, 9)]
    direct.close()
    cache.close()


def test_the_collector_rests_while_a_study_is_read_and_works_afterwards(settings: Settings, study: Study) -> None:
    seen: list[bool] = []

    class Looking(Counting):
        def trials(self, study_id: int, since: int = 0, until: int | None = None) -> Any:
            seen.append(gc.isenabled())
            if len(seen) == 2:
                raise StoreError("gone")
            return super().trials(study_id, since, until)

    cache = StudyCache(settings, lambda: Looking(settings), patience=0.0)  # type: ignore[arg-type, return-value]
    cache.snapshot(study.id)
    assert (seen, gc.isenabled()) == ([False], True)
    change(settings, study, 5)
    with pytest.raises(StoreError):
        cache.snapshot(study.id)
    assert (seen, gc.isenabled()) == ([False, False], True)
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


def test_spending_alone_makes_no_new_version(settings: Settings, study: Study) -> None:
    """Every second of a running study changes its spending; lists of its trials stay what they are."""
    cache = StudyCache(settings, partial(open_store, settings.database), patience=0.0)
    first = cache.snapshot(study.id)
    store = open_store(settings.database)
    store.spend(store.open_session(study.id, 1.0), 5.0, 0.0, 2.0)
    second = cache.snapshot(study.id)
    assert second.spent[0] == first.spent[0] + 5.0
    assert second.stamp != first.stamp
    assert (second.version, second.settled) == (first.version, first.settled)
    assert second.listed is first.listed
    store.add_cycle(study.id, 3, 1, factories.cycle(0))
    third = cache.snapshot(study.id)
    assert third.version != second.version
    assert third.settled == second.settled, "the answer rests on trials that have ended"
    change(settings, study, 5)
    assert cache.snapshot(study.id).settled != third.settled
    store.close()
    cache.close()


def test_an_order_is_what_sorting_everything_anew_gives(settings: Settings, study: Study) -> None:
    """Of the reading before what has not changed is taken as it was sorted; what ran then is sorted in anew."""
    orders: dict[str, tuple[Any, Any]] = {
        "speed": (lambda one: one.by_speed, None),
        "newest": (lambda one: one.newest, None),
        "feasible, by peak": (lambda one: one.by_peak, lambda trial: trial.feasible),
        "ended, by duration": (lambda one: one.by_duration, lambda trial: trial.state.is_finished),
    }
    direct = open_store(settings.database)

    def end(number: int) -> None:
        direct.finish_trial(study.id, number, TrialState.FAIL, factories.oom(), factories.NOW + 1, 1.0, None)

    def finish(number: int, seconds: float) -> None:
        changed = factories.finished(number, configuration=factories.numbered(number), cycle_seconds=seconds)
        record(direct, study, changed)

    steps = [
        lambda: finish(5, 7.0),
        lambda: end(3),
        lambda: direct.start_attempt(study.id, 4, factories.NOW),
        lambda: direct.add_cycle(study.id, 4, 1, factories.cycle(0)),
        lambda: end(4),
        lambda: finish(6, 1.0),
        lambda: finish(7, 20.0),
        lambda: finish(8, 6.0),
    ]
    cache, kept = StudyCache(settings, partial(open_store, settings.database), patience=0.0), []
    for step in [lambda: None, *steps]:
        step()
        found = cache.snapshot(study.id)
        anew = StudyCache(settings, partial(open_store, settings.database), patience=0.0)
        for name, (key, admits) in orders.items():
            expected = [one.trial for one in anew.snapshot(study.id).ordered(name, key, admits)]
            assert [one.trial for one in found.ordered(name, key, admits)] == expected, (name, len(kept))
        anew.close()
        kept.append(found.kept if found.earlier else 0)
    assert kept == [0, 3, 3, 4, 4, 4, 6, 7, 8]
    direct.close()
    cache.close()


def test_another_study_is_another_reading(settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    other = store.create_study(factories.study_spec("other"), factories.NOW)
    store.close()
    cache = StudyCache(settings, partial(open_store, settings.database), patience=1000.0)
    assert len(cache.snapshot(study.id).trials) == 5
    assert cache.snapshot(other.id).trials == ()
    assert cache.snapshot(study.id).stamp != cache.snapshot(other.id).stamp
    cache.close()


def test_what_was_built_is_built_once_and_not_kept_for_ever(settings: Settings) -> None:
    cache = StudyCache(settings, partial(open_store, settings.database))
    built: list[int] = []

    def build(number: int) -> bytes:
        built.append(number)
        return b"%d" % number

    for _ in range(3):
        assert cache.kept("key", lambda: build(0)) == b"0"
    assert built == [0]
    for number in range(1, KEPT_BODIES + 1):
        cache.kept(number, partial(build, number))
    cache.kept("key", lambda: build(0))
    assert built.count(0) == 2


def test_while_one_makes_a_body_anew_the_others_are_given_the_one_before(settings: Settings) -> None:
    """Were all readers to make it, or to wait, one slow body would hold up every thread there is."""
    cache = StudyCache(settings, partial(open_store, settings.database))
    assert cache.lately("name", 1, lambda: b"old") == b"old"
    assert cache.lately("name", 1, lambda: b"never") == b"old"
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        go_on.wait(PATIENCE_S)
        return b"new"

    making = threading.Thread(target=cache.lately, args=("name", 2, slow))
    making.start()
    begun.wait(PATIENCE_S)
    assert cache.lately("name", 2, lambda: b"twice") == b"old"
    go_on.set()
    making.join()
    assert cache.lately("name", 2, lambda: b"twice") == b"new"
    assert cache.lately("other", 2, lambda: b"its own") == b"its own"
    for number in range(2 * KEPT_BODIES):
        cache.lately(number, 1, lambda: b"x")
    assert len(cache._made) == KEPT_BODIES


def test_a_closed_library_can_be_closed_again(settings: Settings, study: Study) -> None:
    cache = StudyCache(settings, partial(open_store, settings.database))
    cache.snapshot(study.id)
    cache.close()
    cache.close()


def test_what_is_slow_to_make_is_made_as_seldom_as_a_study_is_read(settings: Settings) -> None:
    def slow() -> bytes:
        time.sleep(0.02)
        return b"old"

    cache = StudyCache(settings, lambda: None, patience=1e6)  # type: ignore[arg-type, return-value]
    assert cache.lately("name", 1, slow) == b"old"
    assert cache.lately("name", 2, lambda: b"new") == b"old", "20 ms of work are kept for hours at this patience"
    eager = StudyCache(settings, lambda: None, patience=0.0)  # type: ignore[arg-type, return-value]
    assert eager.lately("name", 1, slow) == b"old"
    assert eager.lately("name", 2, lambda: b"new") == b"new"


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
    many_studies(settings, 3 * FEW)
    store = Asked(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    found = cache.studies()
    assert [study.spec.name for study in found] == [f"study {n}" for n in reversed(range(3 * FEW))]
    assert (store.calls["studies"], store.calls["study"]) == (1, 0)
    assert cache.studies() == found
    assert (store.calls["studies"], store.calls["study"]) == (1, 0), "what has not changed is not read again"
    other = open_store(settings.database)
    other.add_event(found[3].id, factories.event())
    other.close()
    assert cache.studies()[3].revision > found[3].revision
    assert (store.calls["studies"], store.calls["study"]) == (1, 1), "of one that has changed only that one"
    cache.close()


def test_more_studies_than_are_kept_by_default_are_kept_all_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cache.studies.KEPT_SPECS", 4)
    many_studies(settings, 3 * FEW)
    store = Asked(settings)
    cache = StudyCache(settings, lambda: store, patience=0.0)  # type: ignore[arg-type, return-value]
    for _ in range(5):
        found = cache.studies()
        assert len(found) == 3 * FEW
        other = open_store(settings.database)
        other.add_event(found[0].id, factories.event())
        other.close()
    assert (store.calls["studies"], store.calls["study"]) == (1, 4)
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
