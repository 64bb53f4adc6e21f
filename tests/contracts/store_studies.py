"""What every ``Store`` must do with studies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import EarlierStudy, PriorKnowledge, StudyStatus
from autotune.errors import AlreadyExistsError, FinishedTrialError, NotFoundError, StoreError
from autotune.ports import Store
from tests.contracts.store_cases import STUDY_CHANGES, STUDY_READS, TRIAL_CHANGES, begin, finish
from tests.support import factories as make


class StudyTests:
    def test_a_study_comes_back_as_it_was_given(self, store: Store) -> None:
        spec = make.study_spec(resources=make.resources(compute_capability=(9, 0)), memory_limit=None)
        study = store.create_study(spec, make.NOW)
        assert study.spec == spec
        assert study.spec.digest == spec.digest
        assert (study.created_at, study.status, study.lengths) == (make.NOW, StudyStatus.OPEN, ())
        assert store.study("first") == store.study(study.id) == study

    def test_an_empty_store_has_no_studies(self, store: Store) -> None:
        assert store.studies() == ()

    def test_studies_are_listed_newest_first(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            store.create_study(make.study_spec(name), make.NOW)
        assert [s.spec.name for s in store.studies()] == ["c", "a", "b"]

    def test_revisions_are_those_of_the_studies(self, store: Store) -> None:
        assert store.revisions() == {}
        for name in ("b", "a"):
            store.create_study(make.study_spec(name), make.NOW)
        store.add_event(1, make.event())
        assert store.revisions() == {s.id: s.revision for s in store.studies()}
        assert list(store.revisions()) == [s.id for s in store.studies()], "newest first"

    def test_fingerprints_are_kept_with_when_they_were_first_seen(self, store: Store) -> None:
        study = begin(store)
        assert store.fingerprints(study) == ()
        one, two = make.fingerprint(), make.fingerprint(workload="c" * 64)
        for at, fingerprint in ((1.0, one), (2.0, one), (3.0, two), (4.0, one)):
            store.save_fingerprint(study, fingerprint, at)
        assert store.fingerprints(study) == ((one, 1.0), (two, 3.0), (one, 4.0))

    def test_a_taken_name_is_refused_and_changes_nothing(self, store: Store) -> None:
        before = store.create_study(make.study_spec(), 1.0)
        with pytest.raises(AlreadyExistsError, match="first"):
            store.create_study(make.study_spec(seed=99), 2.0)
        assert store.studies() == (before,)

    def test_a_name_of_digits_is_a_name(self, store: Store) -> None:
        store.create_study(make.study_spec("other"), 1.0)
        digits = store.create_study(make.study_spec("1"), 1.0)
        assert store.study("1").id == digits.id != 1
        assert store.study(1).spec.name == "other"

    @pytest.mark.parametrize("value", [{1: "key"}, {"when": {1, 2}}, {"when": object()}])
    def test_a_specification_that_is_not_plain_data_is_refused(self, store: Store, value: dict[Any, Any]) -> None:
        with pytest.raises(StoreError, match="passthrough"):
            store.create_study(replace(make.study_spec(), space={}, workload=make.workload(passthrough=value)), 1.0)
        assert store.studies() == ()

    def test_lengths_are_set_once(self, store: Store) -> None:
        study = begin(store)
        store.set_lengths(study, [3, 1, 2])
        store.set_lengths(study, (3, 1, 2))
        with pytest.raises(FinishedTrialError, match="lengths"):
            store.set_lengths(study, (1, 2, 3))
        with pytest.raises(FinishedTrialError, match="lengths"):
            store.set_lengths(study, ())
        assert store.study(study).lengths == (3, 1, 2)

    def test_what_is_known_beforehand_is_set_once_and_comes_back(self, store: Store) -> None:
        study = begin(store)
        assert store.study(study).beforehand is None
        probe = {"device": "cpu", "flops": {"fp32": 1.5e11}, "kernel_s": 2e-6, "note": "lone \ud800, nul \0"}
        known = PriorKnowledge(
            probe, (EarlierStudy(7, "other", (0, 2, 5), 1.5, "study 'other': 4 cores"),), history=True
        )
        before = store.study(study).revision
        assert store.set_beforehand(study, known).beforehand == known
        assert store.study(study).beforehand == known
        assert store.study(study).revision > before
        assert store.set_beforehand(study, PriorKnowledge()) == store.study(study), "the first one stays"
        assert store.study(study).beforehand == known

    def test_status_is_kept(self, store: Store) -> None:
        study = begin(store)
        for status in (StudyStatus.DONE, StudyStatus.OPEN):
            store.set_status(study, status)
            assert store.study(study).status is status

    @pytest.mark.parametrize("name", STUDY_CHANGES)
    def test_every_change_grows_the_revision_of_its_study_alone(self, store: Store, name: str) -> None:
        study, other = begin(store), begin(store, name="other")
        before, untouched = store.study(study).revision, store.study(other)
        STUDY_CHANGES[name](store, study)
        assert store.study(study).revision > before
        assert store.study(other) == untouched

    def test_the_revision_grows_with_every_change_of_a_trial(self, store: Store) -> None:
        study, seen = begin(store), []
        for change in ("add_cycle", "add_startup", "add_worst_case", "add_note", "requeue", "start_attempt"):
            TRIAL_CHANGES[change](store, 0)
            seen.append(store.study(study).revision)
        finish(store, study)
        store.spend(store.open_session(study, 1.0), 1.0, 2.0, 3.0)
        seen.append(store.study(study).revision)
        assert seen == sorted(set(seen))

    def test_reading_does_not_grow_the_revision(self, store: Store) -> None:
        study = begin(store)
        before = store.study(study).revision
        for read in STUDY_READS.values():
            read(store, study)
        assert store.study(study).revision == before

    @pytest.mark.parametrize("missing", [2, 0, -1, 2**62])
    def test_an_unknown_study_is_not_found(self, store: Store, missing: int) -> None:
        begin(store)
        for action in (*STUDY_CHANGES.values(), *STUDY_READS.values()):
            with pytest.raises(NotFoundError, match=str(missing)):
                action(store, missing)

    def test_an_unknown_name_is_named(self, store: Store) -> None:
        with pytest.raises(NotFoundError, match="'nobody'"):
            store.study("nobody")
