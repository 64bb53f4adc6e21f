"""Rollout servers: searched where trials can have one, refused by name where none can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Resources
from autotune.errors import UsageError
from autotune.frameworks import TrlFramework, framework_named
from autotune.ports import Assignment
from autotune.specification import build, prepare
from autotune.specification.interpreter import Interpreter
from autotune.specification.published_baseline import with_published
from autotune.specification.request import Request, ResolvedRequest
from autotune.specification.resolve import resolve_request
from search_spaces.batch import served_by
from search_spaces.configuration import Configuration
from search_spaces.published import published
from search_spaces.space import SearchSpace
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.swift_fields import RECORDED
from trainer.child.contract import Result, TrialSpec

SERVED = ("open_r1", "ms_swift")
MACHINE = Resources(gpus=8, device="cuda", compute_capability=(9, 0), rows_per_update=512, num_generations=8)
RECIPE = """\
model_name_or_path: org/model
dataset_name: org/data
dataset_prompt_column: problem
reward_funcs: [accuracy]
use_vllm: true
per_device_train_batch_size: 8
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


@pytest.mark.parametrize("name", SERVED)
def test_both_splits_are_searched_on_a_node(name: str) -> None:
    space, machine = searched(name, "node-8gpu"), on(name)
    own = build.baseline_of(
        ResolvedRequest(framework=name, rows_per_update=504, max_completion_length=256), space, machine
    )
    found = space.candidates(own, machine, same_learning=False, limit=3000)
    assert {c["rollout_mode"] for c in found if c["rollout_engine"] == "vllm"} == {"colocate", "server"}
    assert len({c["rollout_gpus"] for c in found if c["rollout_mode"] == "server"}) > 1


def test_of_verl_no_candidate_has_a_server() -> None:
    said = build.without_server(SearchSpace.load("node-8gpu"), framework_named("verl"))[1]
    assert said.startswith("rollout_mode server is left out of the space: ")
    assert not {"rollout_mode", "rollout_gpus", "rollout_data_parallel_size"} & set(
        searched("verl", "node-8gpu").values
    )


def test_open_r1_on_one_gpu_tries_vllm_beside_the_training() -> None:
    """Where nothing is said its vLLM has GPUs of its own, of which one GPU has none to give."""
    machine = on("open_r1", gpus=1, rows_per_update=64)
    space = searched("open_r1", "single-gpu")
    own = build.baseline_of(
        ResolvedRequest(framework="open_r1", rows_per_update=64, max_completion_length=256), space, machine
    )
    found = space.candidates(own, machine, same_learning=True, limit=3000)
    assert "vllm" in {c["rollout_engine"] for c in found}


def test_a_study_of_open_r1_that_begins_with_a_server_keeps_it() -> None:
    """Its space says nothing of where vLLM generates, and its baseline does."""
    space = SearchSpace.load("single-gpu")
    assert build.without_server(space, framework_named("open_r1"), served=True) == (space, "")


@pytest.mark.parametrize(("name", "preset"), [("trl", "node-8gpu"), ("ms_swift", "single-gpu"), ("ms_swift", "cpu")])
def test_a_space_that_asks_for_no_such_server_stays_as_it_is(name: str, preset: str) -> None:
    """Or a study of today would be another one tomorrow."""
    space = SearchSpace.load(preset)
    assert build.without_server(space, framework_named(name)) == (space, "")


def test_a_space_of_nothing_but_a_server_is_refused_where_none_can_be() -> None:
    data = {"knobs": {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": [1, 2]}}
    with pytest.raises(UsageError, match="verl trials cannot have a rollout server, because"):
        build.without_server(SearchSpace.from_json(data), framework_named("verl"))
    split = {"knobs": {"rollout_engine": "vllm", "rollout_mode": ["colocate", "server"], "rollout_gpus": [1, 2]}}
    left, _ = build.without_server(SearchSpace.from_json(split), framework_named("verl"))
    assert (dict(left.values), left.fixed["rollout_mode"]) == ({}, "colocate")
    for name in SERVED:
        space = SearchSpace.from_json(data)
        assert build.without_server(space, framework_named(name)) == (space, "")


def test_a_server_of_the_command_line_is_refused_where_none_can_be() -> None:
    with pytest.raises(UsageError, match=r"server: verl trials cannot have a rollout server"):
        build.refuse_server(framework_named("verl"), served_by(1), on("verl"))
    for name in (*SERVED, "trl"):
        build.refuse_server(framework_named(name), served_by(1), on(name))


def test_verls_word_for_no_server_is_its_own() -> None:
    verl = framework_named("verl")
    with pytest.raises(UsageError, match=r"^trainer.v1.trainer_mode server: .* set trainer.v1.trainer_mode to sync\.$"):
        build.refuse_server(verl, {**served_by(1), "async_generation": True}, on("verl"))
    said = verl.unsupported({"micro_batch_size": 1, "async_generation": True})
    assert list(said) == [
        "trainer.v1.trainer_mode colocate_async: no trial has run in an asynchronous mode yet; set it to sync"
    ]


def test_a_study_that_begins_with_sglang_is_refused_in_one_sentence() -> None:
    sglang = {"rollout_engine": "sglang", "tensor_parallel_size": 1, "micro_batch_size": 2, "num_generations": 2}
    machine = on("verl", gpus=2, rows_per_update=4, num_generations=2)
    request = ResolvedRequest(framework="verl", rows_per_update=4)
    space = SearchSpace.from_json({"knobs": {"fsdp": ["fsdp1", "fsdp2"]}})
    words = "^no verl trial can run this: .*rollout.name sglang: no trial has generated with SGLang yet"
    with pytest.raises(UsageError, match=words) as refused:
        prepare.check_baseline(request, framework_named("verl"), space, Configuration(sglang), machine, print)
    assert str(refused.value).endswith("; set it to vllm")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "verl",
            "no verl trial can run this: model_engine megatron: trials of the megatron engine are not run yet; set",
        ),
        (
            "ms_swift",
            "no ms-swift trial can run this: `megatron rlhf`: trials of Megatron-SWIFT are not run yet; a trial",
        ),
    ],
)
@pytest.mark.parametrize(
    ("beginning", "knobs"),
    [("megatron", {"training_tensor_parallel_size": [1, 2]}), ("torch", {"training_engine": ["torch", "megatron"]})],
)
def test_a_study_with_megatron_is_refused_in_one_sentence(
    beginning: str, knobs: dict[str, Any], name: str, words: str
) -> None:
    """Also where the space only lists it behind what a trial can run."""
    own = {"tensor_parallel_size": 1, "micro_batch_size": 2, "num_generations": 2, "training_engine": beginning}
    own["rollout_engine"] = "vllm"
    machine = on(name, gpus=2, rows_per_update=4, num_generations=2)
    request, space = ResolvedRequest(framework=name, rows_per_update=4), SearchSpace.from_json({"knobs": knobs})
    with pytest.raises(UsageError, match=f"^{words}"):
        prepare.check_baseline(request, framework_named(name), space, Configuration(own), machine, print)


def own_run(
    name: str, text: str, gpus: int, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> tuple[ResolvedRequest, list[str]]:
    """A user's own run on so many GPUs, and what is said of it."""
    monkeypatch.setattr(Interpreter, "known_fields", lambda *_: None)
    monkeypatch.setattr(Interpreter, "describe", lambda *_: Result(ok=True, data=RECORDED))
    python: Any = Interpreter("/env/bin/python", None)  # type: ignore[arg-type]
    request = Request(framework=name, config=text, config_name="own", folder="/", data="/p.jsonl", **more)
    said: list[str] = []
    return resolve_request(request, python, on(name, gpus=gpus), talk=said.append), said


def test_the_gpus_that_do_not_train_are_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 + 2 of a script that says with how many processes it trains; another machine has another rest."""
    for gpus, left in ((8, 2), (7, 1)):
        found, said = own_run("ms_swift", SCRIPT.replace("train.sh", "own"), gpus, monkeypatch)
        assert found.baseline["rollout_gpus"] == left
        assert any(f"6 of {gpus} GPUs train, so the server has the other {left}" in line for line in said)
        assert found.rows_per_update == 24


def test_an_accelerate_file_that_counts_all_gpus_is_launched_on_those_that_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open-R1's ``zero2.yaml`` says 8 processes, and its README launches 7 beside a server; another file says 7."""
    for processes in (8, 7):
        text = f"distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: 2}}\nnum_processes: {processes}\n"
        beside = {"accelerate": text, "accelerate_name": "zero2.yaml", "baseline": {"rollout_gpus": 1}}
        found, _ = own_run("open_r1", RECIPE, 8, monkeypatch, **beside)
        assert found.rows_per_update == 7 * 8


def test_a_server_of_unknown_size_is_asked_for_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("open_r1", RECIPE), ("ms_swift", SCRIPT.replace("NPROC_PER_NODE=6 ", ""))):
        with pytest.raises(
            UsageError, match=r"^own(, line \d)?: vllm_mode server: say with --rollout-gpus how many of the 8"
        ):
            own_run(name, text, 8, monkeypatch)
        found, _ = own_run(name, text, 8, monkeypatch, baseline={"rollout_gpus": 1})
        assert found.rows_per_update == 7 * (8 if name == "open_r1" else 4)
    named, _ = own_run("open_r1", f"{RECIPE}vllm_mode: colocate\n", 8, monkeypatch)
    assert named.baseline["rollout_mode"] == "colocate"


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
def test_a_published_server_stays_one(name: str) -> None:
    found = published(name)
    request = Request(framework=found.framework, published=name, folder="/work", data="/p.jsonl", model="/m")
    joined, lines = with_published(request, 8)
    assert joined.baseline["rollout_mode"] == "server"
    assert int(joined.baseline["rollout_gpus"]) >= 1
    assert not any("cannot have a rollout server" in line for line in lines)


def test_no_server_is_started_beside_several_nodes() -> None:
    trl = framework_named("trl")
    space, said = build.without_server(SearchSpace.load("multi-node"), trl, 2)
    assert "rollout_gpus" not in space.values
    assert said == (
        "rollout_mode server is left out of the space: of several nodes all GPUs train, and no server is started "
        "beside them"
    )
    machine = replace(on("trl"), nodes=2)
    with pytest.raises(UsageError, match=r"because of several nodes all GPUs train, .*; set .* to colocate"):
        build.refuse_server(trl, served_by(1), machine, nodes=2)
    build.refuse_server(trl, served_by(1), machine)  # somebody else's machine, whose configuration is only read


def test_verl_has_one_node() -> None:
    with pytest.raises(UsageError, match="--nodes 2: verl starts its processes by a Ray of its own"):
        build.refuse_nodes(framework_named("verl"), Resources(gpus=8, nodes=2, device="cuda"))
    build.refuse_nodes(framework_named("verl"), Resources(gpus=8, device="cuda"))
    build.refuse_nodes(framework_named("ms_swift"), Resources(gpus=8, nodes=2, device="cuda"))
