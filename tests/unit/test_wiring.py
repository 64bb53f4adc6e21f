"""Finding the study a specification belongs to, and saying how two differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from autotune import wiring
from autotune.domain import Budget
from autotune.domain.differences import differing
from autotune.errors import NotFoundError, StudyDiffersError, UsageError
from autotune.frameworks import framework_named
from autotune.ports import Assignment
from autotune.running.local import LocalRunner
from autotune.running.warm_pool import WarmWorkerPool
from autotune.settings import read_settings
from autotune.specification import build
from autotune.store import open_store
from autotune.study.crews import Alone
from tests.support import factories as f
from tests.support.fakes import FakeStop, SeenObserver
from tests.support.not_none import not_none


@pytest.mark.parametrize("late", [False, True])
def test_the_same_specification_is_the_same_study(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Another path of the interpreter is no other; ``late``: another command begins it between two looks."""
    store = open_store(":memory:")
    first, existed = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    monkeypatch.setattr(store, "study", Mock(side_effect=[NotFoundError("not yet")] * late + [first]))
    again, found = wiring.find_or_create(store, f.study_spec(python="/elsewhere/python"), f.NOW + 60, fork=False)
    assert (first.id, existed, found) == (again.id, False, True)


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


def test_a_study_goes_on_with_its_own_sampler_unless_one_is_named() -> None:
    store = open_store(":memory:")
    first, _ = wiring.find_or_create(store, f.study_spec(sampler="tpe"), f.NOW, fork=False)
    asked = f.study_spec(sampler="grey")
    found, existed = wiring.find_or_create(store, asked, f.NOW, fork=False, any_sampler=True)
    assert (found.id, found.spec.sampler, existed) == (first.id, "tpe", True)
    with pytest.raises(StudyDiffersError, match="sampler: tpe -> grey"):
        wiring.find_or_create(store, asked, f.NOW, fork=False)
    with pytest.raises(StudyDiffersError, match="seed: 0 -> 7"):
        wiring.find_or_create(store, replace(asked, seed=7), f.NOW, fork=False, any_sampler=True)


def test_differences_name_the_place() -> None:
    spec = f.study_spec()
    changed = replace(spec, baseline=spec.baseline.with_(micro_batch_size=8), memory_limit=None)
    assert differing(spec.identity(), spec.identity()) == []
    found = differing(spec.identity(), changed.identity())
    assert "baseline.micro_batch_size: 2 -> 8" in found
    assert any(line.startswith("memory_limit:") and line.endswith("-> not set") for line in found)


def test_where_the_prompts_lie_and_what_the_config_looks_like_make_no_other_study() -> None:
    """A home that was moved, or a comment in the user's file, must not begin a new study."""
    spec = f.study_spec()
    moved = f.study_spec(workload=f.workload(prompts="/elsewhere/prompts.jsonl"), user_config="# mine\nbeta: 0.0\n")
    assert spec.digest == moved.digest
    assert build.fingerprint_of(spec, {}).digest == build.fingerprint_of(moved, {}).digest


def test_an_edited_reward_file_is_another_study_and_the_difference_says_so() -> None:
    before, after = (f.study_spec(workload=f.workload(rewards=(f.reward(sha256=text),))) for text in ("a", "b"))
    assert differing(before.identity(), after.identity()) == ["workload.rewards[0].sha256: a -> b"]


def test_a_hub_model_is_rendered_with_its_commit() -> None:
    study = f.study(spec=f.study_spec(workload=f.workload(model="org/name", model_sha256="c" * 40)))
    spec = framework_named("trl").render(Assignment(study, f.trial(), Path("run"), 1.0))
    assert (spec.model, spec.revision) == ("org/name", "c" * 40)
    folder = framework_named("trl").render(Assignment(f.study(), f.trial(), Path("run"), 1.0))
    assert (folder.model, folder.revision) == ("/models/small", "")


def test_trials_of_another_machine_are_not_added_to() -> None:
    store = open_store(":memory:")
    study, _ = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)
    here = f.fingerprint()
    wiring.check_machine(store, study, here)
    store.save_fingerprint(study.id, here, f.NOW)
    wiring.check_machine(store, study, here)
    wiring.check_machine(store, study, replace(here, workload="as another version would put it"))
    wiring.check_machine(store, study, replace(here, hardware={**here.hardware, "new": "an earlier version read less"}))
    other = replace(here, hardware={**here.hardware, "cpu": "another"})
    with pytest.raises(StudyDiffersError, match=r"hardware\.cpu: example -> another"):
        wiring.check_machine(store, study, other)


def test_an_unknown_framework_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="trl"):
        framework_named("megatron")


def test_processes_are_shared_only_where_a_loop_asks_for_it(tmp_path: Path) -> None:
    settings = read_settings({}, home=tmp_path)
    store = open_store(":memory:")
    stored, _ = wiring.find_or_create(store, f.study_spec(), f.NOW, fork=False)

    def keeper(device: str = "cuda", **options: bool) -> WarmWorkerPool | None:
        study = replace(stored, spec=replace(stored.spec, resources=f.resources(device=device)))
        loop = wiring.loop(
            study, Budget(max_trials=1), store, settings, SeenObserver(), FakeStop(), f.fingerprint(), **options
        )
        assert isinstance(loop._crew, Alone)
        runner = loop._crew._runner
        assert isinstance(runner, LocalRunner)
        return runner.keeper

    assert keeper() is None
    assert keeper(warm=False) is None
    assert keeper("cpu", warm=True) is None, "the heap of a used process is not that of a new one"
    found = not_none(keeper(warm=True))
    assert found.root == settings.home.study(stored.id, stored.spec.name) / "workers"


def test_looking_for_a_study_creates_no_database_and_finds_the_one_of_that_name(tmp_path: Path) -> None:
    settings = read_settings({}, home=tmp_path / "home")
    assert wiring.stored(settings, "first") is None
    assert not (tmp_path / "home").exists()
    store = wiring.open_store_for(settings)
    store.create_study(f.study_spec(), f.NOW)
    store.close()
    found = not_none(wiring.stored(settings, "first"))
    assert (found[0].digest, found[1]) == (f.study_spec().digest, False)
    assert wiring.stored(settings, "second") is None


def test_a_proposer_works_on_one_thread_beside_the_trials() -> None:
    with threadpool_limits(limits=2, user_api="blas"):
        wiring.proposer_for(f.study_spec())
        assert {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"} == {1}
