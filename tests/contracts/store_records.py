"""What every ``Store`` must do with events, the ledger, evidence and locks; and that its values are copies."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from autotune.errors import NotFoundError, StoreError, StudyBusyError
from autotune.ports import Store
from tests.contracts.store_cases import HOSTILE, STUDY_CHANGES, STUDY_READS, TRIAL_CHANGES, begin, finish
from tests.support import factories as make
from tests.support.not_none import not_none


class EventTests:
    def test_events_are_numbered_within_their_study(self, store: Store) -> None:
        first, second = begin(store), begin(store, name="second")
        ids = [store.add_event(s, make.event()).id for s in (first, second, first, first)]
        assert ids == [1, 1, 2, 3]

    def test_an_event_comes_back_exactly(self, store: Store) -> None:
        study = begin(store)
        event = make.event("oom", HOSTILE, data={"deep": [{"x": None}], "nan": math.inf}, trial=None, at=1.25)
        stored = store.add_event(study, event)
        assert stored == make.event("oom", HOSTILE, data=event.data, trial=None, at=1.25, id=1)
        assert store.events(study) == (stored,)

    @pytest.mark.parametrize(
        ("after", "limit", "ids"),
        [(0, 1000, [1, 2, 3, 4, 5]), (3, 1000, [4, 5]), (0, 2, [1, 2]), (2, 2, [3, 4]), (5, 9, []), (0, 0, [])],
    )
    def test_events_are_paged_oldest_first(self, store: Store, after: int, limit: int, ids: list[int]) -> None:
        study = begin(store)
        for i in range(5):
            store.add_event(study, make.event(message=str(i)))
        assert [e.id for e in store.events(study, after, limit)] == ids

    def test_events_of_one_kind(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        for kind in ("a", "b", "a"):
            store.add_event(study, make.event(kind))
        store.add_event(other, make.event("a"))
        assert [e.id for e in store.events(study, kind="a")] == [1, 3]
        assert [e.id for e in store.events(study, after=1, limit=1, kind="a")] == [3]
        assert store.events(study, kind="c") == ()
        assert (store.last_event_id(study), store.last_event_id(other)) == (3, 1)

    def test_before_the_first_event_the_last_id_is_0(self, store: Store) -> None:
        assert store.last_event_id(begin(store)) == 0


class LedgerTests:
    def test_nothing_is_spent_at_first(self, store: Store) -> None:
        study = begin(store)
        assert store.spent(study) == (0.0, 0.0)
        store.open_session(study, 1.0)
        assert store.spent(study) == (0.0, 0.0)

    def test_a_session_tells_totals_and_sessions_add_up(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        first = store.open_session(study, 1.0)
        for total in (1.0, 5.0, 12.5):
            store.spend(first, total, 2 * total, 1.0 + total)
        second, elsewhere = store.open_session(study, 100.0), store.open_session(other, 100.0)
        store.spend(second, 0.5, 0.25, 101.0)
        store.spend(elsewhere, 1000.0, 1000.0, 101.0)
        assert len({first, second, elsewhere}) == 3
        assert store.spent(study) == (13.0, 25.25)

    def test_an_unknown_session_is_not_found(self, store: Store) -> None:
        session = store.open_session(begin(store), 1.0)
        with pytest.raises(NotFoundError, match="session"):
            store.spend(session + 1, 1.0, 1.0, 1.0)


class EvidenceTests:
    def test_the_newest_fingerprint_counts(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        assert store.fingerprint(study) is None
        old, new = make.fingerprint(), make.fingerprint(software={"torch": "9"})
        for fingerprint in (old, new, old):
            store.save_fingerprint(study, fingerprint, 1.0)
            assert store.fingerprint(study) == fingerprint
        assert store.fingerprint(other) is None

    def test_the_same_fingerprint_again_changes_nothing(self, store: Store) -> None:
        study = begin(store)
        store.save_fingerprint(study, make.fingerprint(), 1.0)
        before = store.study(study)
        store.save_fingerprint(study, make.fingerprint(), 2.0)
        assert store.study(study) == before

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"rows": ()},
            {"rows": (make.recommendation_row(), make.recommendation_row(title="if you allow", gain=None))},
            {
                "rows": (
                    make.recommendation_row(host_peak=None, headroom=None, maximum_tokens_per_hour=None, trials=()),
                )
            },
            {"rows": (make.recommendation_row(low=-math.inf, high=math.inf),)},
            {"reference": None, "baseline": HOSTILE, "notes": ("a", "b")},
        ],
    )
    def test_a_recommendation_comes_back_exactly(self, store: Store, changes: dict[str, Any]) -> None:
        study = begin(store)
        assert store.recommendation(study) is None
        store.save_recommendation(study, make.recommendation(**changes))
        assert store.recommendation(study) == make.recommendation(**changes)

    def test_the_newest_recommendation_counts(self, store: Store) -> None:
        study, other = begin(store), begin(store, name="other")
        store.save_recommendation(study, make.recommendation(ended_by="budget", created_at=9.0))
        store.save_recommendation(study, make.recommendation(ended_by="trials", created_at=1.0))
        newest = not_none(store.recommendation(study))
        assert newest.ended_by == "trials"
        assert store.recommendation(other) is None


class LockTests:
    def test_a_held_study_is_busy_until_it_is_let_go(self, store: Store) -> None:
        study = begin(store)
        with store.lock(study), pytest.raises(StudyBusyError, match="first"), store.lock(study):
            pytest.fail("two tuners hold one study")
        with store.lock(study):
            pass

    def test_whether_a_study_is_held_can_be_asked(self, store: Store) -> None:
        first, second = begin(store), begin(store, name="second")
        assert not store.is_locked(first)
        lock = store.lock(first)
        for _ in range(2):
            with lock:
                assert [store.is_locked(first), store.is_locked(second)] == [True, False]
                assert lock.is_held()
                assert store.lock(first).is_held()
            assert not store.is_locked(first)
            assert not lock.is_held()

    def test_a_tuner_that_starts_while_others_ask_is_not_refused(self, store: Store) -> None:
        study, ended = begin(store), Event()

        def ask() -> list[bool]:
            said = []
            while not ended.is_set():
                said.append(store.is_locked(study))
            return said

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(ask) for _ in range(2)]
            try:
                for _ in range(20):
                    with store.lock(study):
                        assert store.is_locked(study)
            finally:
                ended.set()
            assert all(one.result() for one in asking), "nobody asked"
        assert not store.is_locked(study)

    def test_a_lock_object_is_not_its_own_key(self, store: Store) -> None:
        lock = store.lock(begin(store))
        with lock:
            with pytest.raises(StudyBusyError), lock:
                pytest.fail("entered twice")
            with pytest.raises(StudyBusyError), store.lock(1):
                pytest.fail("the refused entry let the lock go")
        with lock:
            pass

    def test_an_error_inside_lets_go(self, store: Store) -> None:
        study = begin(store)
        with pytest.raises(KeyboardInterrupt), store.lock(study):
            raise KeyboardInterrupt
        with store.lock(study):
            pass

    def test_studies_are_locked_apart_and_may_be_written_meanwhile(self, store: Store) -> None:
        first, second = begin(store), begin(store, name="second")
        with store.lock(first), store.lock(second):
            store.add_event(first, make.event())
        assert len(store.events(first)) == 1


class CopyTests:
    def test_what_was_given_can_be_changed_without_effect(self, store: Store) -> None:
        options: dict[str, Any] = {"nested": [1]}
        spec = make.study_spec(workload=make.workload(passthrough=options))
        study = store.create_study(spec, 1.0)
        store.add_trial(1, make.draft(), 1.0)
        store.start_attempt(1, 0, 1.0)
        phases, data = {"update": 1.0}, {"list": [1]}
        store.add_cycle(1, 0, 1, make.cycle(0, phases=phases))
        event = store.add_event(1, make.event(data=data))
        lengths = [1, 2]
        store.set_lengths(1, lengths)
        for given in (options["nested"], data["list"], lengths):
            given.append(99)
        phases["update"] = 99.0
        assert study.spec.workload.passthrough == store.study(1).spec.workload.passthrough == {"nested": [1]}
        assert store.trial(1, 0).cycles[0].phases == {"update": 1.0}
        assert event.data == store.events(1)[0].data == {"list": [1]}
        assert store.study(1).lengths == (1, 2)

    def test_what_came_out_can_be_changed_without_effect(self, store: Store) -> None:
        study = begin(store)
        store.add_startup(study, 0, 1, make.startup())
        store.add_note(study, 0, 1, make.note(values=[1]))
        store.add_event(study, make.event(data={"values": [1]}))
        store.save_fingerprint(study, make.fingerprint(), 1.0)
        store.save_recommendation(study, make.recommendation())
        finish(store, study)

        def everything() -> list[Any]:
            notes, events = store.notes(study, 0), store.events(study)
            return [store.study(study), store.trial(study, 0), store.fingerprint(study), store.recommendation(study),
                    *store.trials(study), *store.studies(), *notes, *events]  # fmt: skip

        before, handed_out = everything(), everything()
        assert before == handed_out
        for value in handed_out:
            _vandalise(value)
        assert everything() == before

    def test_a_closed_store_says_so(self, store: Store) -> None:
        study = begin(store)
        store.close()
        store.close()
        for action in (*STUDY_CHANGES.values(), *STUDY_READS.values()):
            with pytest.raises(StoreError, match="closed"):
                action(store, study)
        with pytest.raises(StoreError, match="closed"):
            TRIAL_CHANGES["add_cycle"](store, 0)


def _vandalise(value: Any) -> None:
    """Empty every list and mapping that can be reached from ``value``."""
    if isinstance(value, dict | list):
        for child in list(value.values() if isinstance(value, dict) else value):
            _vandalise(child)
        value.clear()
    elif isinstance(value, tuple):
        for child in value:
            _vandalise(child)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _vandalise(getattr(value, name))
