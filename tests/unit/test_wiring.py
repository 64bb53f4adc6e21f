"""Finding the study a specification belongs to, and saying how two differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune import preparation, wiring
from autotune.errors import StudyDiffersError, UsageError
from autotune.store import open_store
from tests import factories as f


def test_the_same_specification_is_the_same_study() -> None:
    store = open_store(":memory:")
    first, existed = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    again, found = wiring.find_or_create(store, f.study_spec(), f.NOW + 60, fork=False)
    assert (first.id, existed, found) == (again.id, False, True)


def test_another_interpreter_path_is_not_another_study() -> None:
    store = open_store(":memory:")
    first, _ = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    moved, existed = wiring.find_or_create(store, f.study_spec(python="/elsewhere/python"), f.NOW, fork=False)
    assert (moved.id, existed) == (first.id, True)


def test_another_specification_under_the_name_is_refused_with_the_difference() -> None:
    store = open_store(":memory:")
    wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    other = f.study_spec(workload=f.workload(max_completion_length=256), seed=7)
    with pytest.raises(StudyDiffersError) as refused:
        wiring.find_or_create(store, other, f.NOW, fork=False)
    assert "workload.max_completion_length: 128 -> 256" in str(refused.value)
    assert "seed: 0 -> 7" in str(refused.value)
    assert refused.value.exit_code == 2


def test_new_starts_a_study_beside_it_and_finds_it_again() -> None:
    store = open_store(":memory:")
    wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    second, _ = wiring.find_or_create(store, f.study_spec(seed=1), f.NOW, fork=True)
    third, _ = wiring.find_or_create(store, f.study_spec(seed=2), f.NOW, fork=True)
    assert [s.spec.name for s in (second, third)] == ["first-2", "first-3"]
    again, existed = wiring.find_or_create(store, f.study_spec(seed=2), f.NOW, fork=True)
    assert (again.id, existed) == (third.id, True)


def test_differences_name_the_place() -> None:
    spec = f.study_spec()
    changed = replace(spec, baseline=spec.baseline.with_(micro_batch_size=8), memory_limit=None)
    assert preparation.differences(spec, spec) == []
    found = preparation.differences(spec, changed)
    assert "baseline.micro_batch_size: 2 -> 8" in found
    assert any(line.startswith("memory_limit:") for line in found)


def test_trials_of_another_machine_are_not_added_to() -> None:
    store = open_store(":memory:")
    study, _ = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    here = f.fingerprint()
    wiring.check_machine(store, study, here)
    store.save_fingerprint(study.id, here, f.NOW)
    wiring.check_machine(store, study, here)
    other = replace(here, hardware={**here.hardware, "cpu": "another"})
    with pytest.raises(StudyDiffersError, match=r"hardware\.cpu: example -> another"):
        wiring.check_machine(store, study, other)


def test_an_unknown_framework_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="trl"):
        wiring.framework_named("megatron")
