"""Rollout servers where no trial can have one: refused in a baseline by its line, never proposed by a search.

If one of these fails, a study of Open-R1 or ms-swift on several GPUs spends its budget on trials that cannot start.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Resources
from autotune.errors import UsageError
from autotune.frameworks import TrlFramework, framework_named
from autotune.ports import Assignment
from autotune.specification import build
from autotune.specification.interpreter import Interpreter
from autotune.specification.published_baseline import with_published
from autotune.specification.request import Complete, Request
from autotune.specification.resolve import complete
from search_spaces.batch import served_by
from search_spaces.errors import SpaceError
from search_spaces.published import published
from search_spaces.space import SearchSpace
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.swift_fields import RECORDED
from trainer.child.contract import Result, TrialSpec

SERVERLESS = ("open_r1", "ms_swift")
MACHINE = Resources(gpus=8, device="cuda", compute_capability=(9, 0), rows_per_update=512, num_generations=8)
RECIPE = """\
model_name_or_path: org/model
dataset_name: org/data
dataset_prompt_column: problem
reward_funcs: [accuracy]
use_vllm: true
per_device_train_batch_size: 4
num_generations: 8
"""
SCRIPT = """\
NPROC_PER_NODE=6 swift rlhf --rlhf_type grpo --model org/model --reward_funcs accuracy \\
    --per_device_train_batch_size 4 --num_generations 8 \\
    --use_vllm true --vllm_mode server
"""


def on(name: str, **changes: Any) -> Resources:
    return replace(MACHINE, framework=name, **changes)


def searched(name: str, preset: str) -> SearchSpace:
    """As ``wiring.prepare`` has it."""
    framework = framework_named(name)
    return build.without_server(build.fitted(SearchSpace.load(preset), framework)[0], framework)[0]


@pytest.mark.parametrize("name", SERVERLESS)
def test_no_candidate_has_a_server_and_vllm_is_still_among_them(name: str) -> None:
    space, machine = searched(name, "node-8gpu"), on(name)
    assert not {"rollout_mode", "rollout_gpus", "rollout_data_parallel_size"} & set(space.values)
    own = build.baseline_of(Complete(framework=name, rows_per_update=512, max_completion_length=256), space, machine)
    found = space.candidates(own, machine, same_learning=False, limit=3000)
    assert {c["rollout_engine"] for c in found} == {"vllm", "transformers"}
    assert {c["rollout_mode"] for c in found if c["rollout_engine"] == "vllm"} == {"colocate"}
    said = build.without_server(SearchSpace.load("node-8gpu"), framework_named(name))[1]
    assert said.startswith("rollout_mode server is left out of the space: ")


def test_open_r1_on_one_gpu_tries_vllm_beside_the_training() -> None:
    """Where nothing is said its vLLM has GPUs of its own, of which one GPU has none to give."""
    machine = on("open_r1", gpus=1, rows_per_update=64)
    space = searched("open_r1", "single-gpu")
    own = build.baseline_of(
        Complete(framework="open_r1", rows_per_update=64, max_completion_length=256), space, machine
    )
    found = space.candidates(own, machine, same_learning=True, limit=3000)
    assert "vllm" in {c["rollout_engine"] for c in found}


@pytest.mark.parametrize(("name", "preset"), [("trl", "node-8gpu"), ("ms_swift", "single-gpu"), ("ms_swift", "cpu")])
def test_a_space_that_asks_for_no_such_server_stays_as_it_is(name: str, preset: str) -> None:
    """Or a study of today would be another one tomorrow."""
    space = SearchSpace.load(preset)
    assert build.without_server(space, framework_named(name)) == (space, "")


def test_a_space_of_nothing_but_a_server_is_refused() -> None:
    data = {"knobs": {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": [1, 2]}}
    with pytest.raises(UsageError, match="Open-R1 trials cannot have a rollout server, because"):
        build.without_server(SearchSpace.from_json(data), framework_named("open_r1"))
    split = {"knobs": {"rollout_engine": "vllm", "rollout_mode": ["colocate", "server"], "rollout_gpus": [1, 2]}}
    with pytest.raises(SpaceError, match="at least one knob with two values"):
        build.without_server(SearchSpace.from_json(split), framework_named("ms_swift"))


@pytest.mark.parametrize("name", SERVERLESS)
def test_a_server_of_the_command_line_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"^vllm_mode server: .* set vllm_mode to colocate\.$"):
        build.refuse_server(framework_named(name), served_by(1), on(name))
    build.refuse_server(framework_named("trl"), served_by(1), on("trl"))
    build.refuse_server(framework_named(name), {"rollout_engine": "vllm", "rollout_mode": "colocate"}, on(name))


def test_verls_word_for_no_server_is_its_own() -> None:
    verl = framework_named("verl")
    with pytest.raises(UsageError, match=r"^trainer.v1.trainer_mode server: .* set trainer.v1.trainer_mode to sync\.$"):
        build.refuse_server(verl, {**served_by(1), "async_generation": True}, on("verl"))
    said = verl.unsupported({"micro_batch_size": 1, "async_generation": True})
    assert list(said) == [
        "trainer.v1.trainer_mode colocate_async: no trial has run in an asynchronous mode yet; set it to sync"
    ]


def test_a_users_own_server_is_refused_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody is asked how many GPUs it has."""
    monkeypatch.setattr(Interpreter, "known_fields", lambda *_: None)
    monkeypatch.setattr(Interpreter, "describe", lambda *_: Result(ok=True, data=RECORDED))
    python: Any = Interpreter("/env/bin/python", None)  # type: ignore[arg-type]
    swift = Request(framework="ms_swift", config=SCRIPT, config_name="train.sh", folder="/")
    with pytest.raises(UsageError, match=r"^train\.sh, line \d: vllm_mode server: ms-swift trials cannot have"):
        complete(swift, python, on("ms_swift"))
    recipe = Request(framework="open_r1", config=RECIPE, config_name="recipe.yaml", folder="/")
    with pytest.raises(UsageError, match=r"^recipe\.yaml: vllm_mode server: Open-R1 trials cannot have"):
        complete(recipe, python, on("open_r1"))
    named = replace(recipe, config=f"{RECIPE}vllm_mode: colocate\n")
    assert complete(named, python, on("open_r1")).baseline["rollout_mode"] == "colocate"


class Refusing(TrlFramework):
    """Cannot be given what a rule let through."""

    def render(self, assignment: Assignment) -> TrialSpec:
        raise ValueError("a trial cannot be given this")


def test_what_a_framework_cannot_be_given_ends_a_trial_and_not_the_study(tmp_path: Path) -> None:
    given = assignment(tmp_path / "attempt", {})
    watcher: Any = None
    report = local_runner("refusing", framework=Refusing()).run(given, watcher, FakeStop())
    assert report.outcome.reason is FailureReason.ILLEGAL
    assert report.outcome.message == "a trial cannot be given this"
    assert not (tmp_path / "attempt").exists()


@pytest.mark.parametrize("name", ["openr1:qwen2.5-1.5b-code", "swift:qwen2.5-7b-server"])
def test_a_published_server_becomes_an_engine_beside_the_training_and_that_is_said(name: str) -> None:
    found = published(name)
    request = Request(framework=found.framework, published=name, folder="/work", data="/p.jsonl", model="/m")
    joined, lines = with_published(request, 8)
    framework, machine = framework_named(found.framework), on(found.framework)
    build.refuse_server(framework, joined.baseline, machine)
    assert joined.baseline["rollout_mode"] == "colocate"
    assert any(f"{framework.title} trials cannot have a rollout server" in line for line in lines)
