"""The rollout server's command line, as TRL 1.16 and vLLM 0.31 want it.

What a launch does on a GPU is not yet measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.frameworks import TrlFramework, framework_named
from autotune.ports import Assignment, Companion, Place
from search_spaces.configuration import Configuration, Resources
from search_spaces.legality import check
from tests.support import factories
from tests.support.not_none import not_none
from tests.support.trl_keys import EVERY
from trainer.frameworks.common.serving import SERVE, split
from trainer.frameworks.trl import server

OPEN_R1: dict[str, Any] = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}
"""3 + 1 on four GPUs, and Swift's 7 + 1 on eight."""
BEFORE = ("/env/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "/models/m", "--host", "127.0.0.1")
BEHIND = (
    *("--enable-scale-out", "--weight-transfer-config", '{"backend": "nccl"}'),
    *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--disable-uvicorn-access-log"),
)


def command(longest: int = 1536, **knobs: Any) -> tuple[str, ...]:
    return server.server_command({**OPEN_R1, **knobs}, "/models/m", "/env/bin/python", 8123, longest=longest)


def option(argv: tuple[str, ...], name: str) -> str:
    assert argv.count(name) == 1, argv
    return argv[argv.index(name) + 1]


def gpus(count: int) -> tuple[str, ...]:
    return tuple(f"GPU-{number}" for number in range(count))


def test_the_whole_line_of_three_and_one() -> None:
    assert command() == (
        *(*BEFORE, "--port", "8123", "--tensor-parallel-size", "1", "--data-parallel-size", "1"),
        *("--max-model-len", "1536", *BEHIND),
    )


@pytest.mark.parametrize(
    ("vllm", "scales"), [("0.26.0", False), ("0.29.1", False), ("0.30.0", True), ("0.31.0+cpu", True), ("", True)]
)
def test_an_option_that_an_older_vllm_refuses_is_left_out_there(vllm: str, scales: bool) -> None:
    argv = server.server_command(OPEN_R1, "/models/m", "/env/bin/python", 8123, longest=8, vllm=vllm)
    assert ("--enable-scale-out" in argv) is scales
    assert option(argv, "--weight-transfer-config") == BEHIND[2]


def test_the_whole_line_with_every_knob_of_the_engine() -> None:
    argv = server.server_command(
        {**OPEN_R1, "rollout_gpus": 4, "tensor_parallel_size": 2, "rollout_data_parallel_size": 2, **EVERY},
        "org/model",
        "/env/bin/python",
        8123,
        longest=1536,
        name="autotune-1-0-1",
        revision="abc123",
        passthrough={"trust_remote_code": True, "vllm_model_impl": "transformers", "beta": 0.0},
    )
    assert argv == (
        *("/env/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "org/model", "--host", "127.0.0.1"),
        *("--port", "8123", "--served-model-name", "autotune-1-0-1", "--revision", "abc123"),
        *("--trust-remote-code", "--model-impl", "transformers"),
        *("--tensor-parallel-size", "2", "--data-parallel-size", "2", "--max-model-len", "2048"),
        *("--gpu-memory-utilization", "0.85", "--kv-cache-memory-bytes", "1073741824", "--max-num-seqs", "128"),
        *("--max-num-batched-tokens", "8192", "--max-cudagraph-capture-size", "256", "--kv-cache-dtype", "fp8"),
        *("--load-format", "dummy", "--no-enforce-eager", "--no-enable-prefix-caching", "--enable-chunked-prefill"),
        *("--dtype", "bfloat16", "--quantization", "fp8", "--disable-custom-all-reduce"),
        *("--compilation-config", '{"mode": "NONE"}', *BEHIND),
    )


def test_a_knob_that_rests_is_left_out() -> None:
    """The graphs' size with graphs turned off, and what only a colocated engine has."""
    argv = command(enforce_eager=True, cuda_graph_max_batch=64, sleep_level=2)
    assert "--max-cudagraph-capture-size" not in argv
    assert "--enforce-eager" in argv
    assert not any("sleep" in word for word in argv)


@pytest.mark.parametrize(("held", "given"), [(1, 1), (4, 4), (4, 0), (0, 1)])
def test_neither_side_is_left_without(held: int, given: int) -> None:
    with pytest.raises(ValueError, match="rollout_gpus"):
        split(gpus(held), {"rollout_gpus": given})


def companion(held: int, tmp_path: Path, vllm: str = "0.31.0", **knobs: Any) -> Companion | None:
    """What a TRL trial on ``held`` GPUs needs beside it."""
    resources = Resources(gpus=held, device="cuda", compute_capability=(9, 0), software={"vllm": vllm})
    study = factories.study(spec=factories.study_spec(resources=resources))
    trial = factories.trial(configuration=factories.configuration(**knobs), attempt=2)
    assignment, framework = Assignment(study, trial, tmp_path, 60.0), TrlFramework()
    place = Place("/env/bin/python", gpus(held), 8123, 8124)
    return framework.companion(assignment, framework.render(assignment), place)


@pytest.mark.parametrize("vllm", ["0.29.0", "0.30.0"])
def test_the_vllm_of_the_study_decides(vllm: str, tmp_path: Path) -> None:
    found = not_none(companion(4, tmp_path, vllm, **OPEN_R1))
    assert ("--enable-scale-out" in found.argv) is (vllm == "0.30.0")


def test_trls_server_is_known_by_the_name_of_the_attempt(tmp_path: Path) -> None:
    found = not_none(companion(4, tmp_path, **OPEN_R1))
    assert found.health.startswith("http://127.0.0.1:8123/")
    assert option(found.argv, "--served-model-name") == found.answer.strip('"')
    assert found.answer.endswith('-2"'), "the number of the attempt"


def test_nothing_listens_beyond_this_machine(tmp_path: Path) -> None:
    """vLLM's development mode runs what it is sent."""
    found = not_none(companion(4, tmp_path, **OPEN_R1))
    assert option(found.argv, "--host") == "127.0.0.1"
    for environment in (found.environment, found.trial_environment):
        assert environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert "0.0.0.0" not in " ".join(found.argv)  # noqa: S104 - it is what must not be there


def test_no_secret_is_in_what_everybody_can_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.setenv("VLLM_API_KEY", "verysecret")
    found = not_none(companion(4, tmp_path, **OPEN_R1))
    assert not any("secret" in word for word in (*found.argv, *found.environment.values()))


@pytest.mark.parametrize("knobs", [{}, {"rollout_engine": "vllm"}, {"rollout_engine": "vllm", "rollout_gpus": 1}])
def test_a_colocated_rollout_has_no_server(knobs: dict[str, Any], tmp_path: Path) -> None:
    assert companion(4, tmp_path, **knobs) is None
    assert companion(0, tmp_path, **knobs) is None


def test_more_gpus_for_the_server_than_there_are_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rollout_gpus 1 of 1 GPUs"):
        companion(1, tmp_path, **OPEN_R1)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("replicas", [None, 1, 2, 3])
@pytest.mark.parametrize("given", [1, 2, 3, 4, 7])
def test_what_is_legal_can_be_launched_and_nothing_else(size: int, replicas: int | None, given: int) -> None:
    """Legality and launch must say the same, or the one lets through what the other dies of."""
    knobs: dict[str, Any] = {**OPEN_R1, "rollout_gpus": given, "tensor_parallel_size": size}
    if replicas is not None:
        knobs["rollout_data_parallel_size"] = replicas
    rows = (8 - given) * 8
    configuration = {**knobs, "micro_batch_size": 8, "num_generations": 8}
    machine = Resources(gpus=8, device="cuda", compute_capability=(9, 0), rows_per_update=rows)
    broken = {violation.rule for violation in check(configuration, machine)}
    assert broken <= {"server_gpus"}, "nothing else is wrong with these"
    if broken:
        with pytest.raises(ValueError, match="is not rollout_gpus"):
            command(**knobs)
    else:
        argv = command(**knobs)
        used = int(option(argv, "--tensor-parallel-size")) * int(option(argv, "--data-parallel-size"))
        assert used == given


def other(name: str, held: int, tmp_path: Path, passthrough: dict[str, Any] | None = None, **knobs: Any) -> Companion:
    """What a trial of another framework on ``held`` GPUs needs beside it."""
    resources = Resources(gpus=held, device="cuda", compute_capability=(9, 0), framework=name)
    workload = factories.workload(passthrough=passthrough or {})
    spec = factories.study_spec(framework=name, resources=resources, workload=workload, checkout="/sources/open-r1")
    configuration = Configuration({"micro_batch_size": 8, **OPEN_R1, **knobs})
    trial = factories.trial(
        configuration=configuration, rows_per_update=8 * (held - int(configuration["rollout_gpus"])), attempt=2
    )
    assignment, framework = Assignment(factories.study(spec=spec), trial, tmp_path, 60.0), framework_named(name)
    place = Place("/env/bin/python", gpus(held), 8123, 8124)
    return not_none(framework.companion(assignment, framework.render(assignment), place))


@pytest.mark.parametrize("name", ["trl", "open_r1", "ms_swift"])
@pytest.mark.parametrize(("held", "ranks"), [(4, 3), (8, 7)])
def test_trainer_and_server_are_told_of_each_other(name: str, held: int, ranks: int, tmp_path: Path) -> None:
    """Open-R1's 3 + 1 and Swift's 7 + 1."""
    found = other(name, held, tmp_path)
    assert found.spec.world_size == ranks
    assert found.trial_environment["CUDA_VISIBLE_DEVICES"] == ",".join(gpus(held)[:-1])
    assert found.environment["CUDA_VISIBLE_DEVICES"] == gpus(held)[-1]
    if name != "trl":
        assert found.argv[:4] == ("/env/bin/python", SERVE, name, str(tmp_path.resolve()))
        assert found.health == "http://127.0.0.1:8123/health/"
    assert (option(found.argv, "--host"), option(found.argv, "--port")) == ("127.0.0.1", "8123")
    assert (found.spec.settings["use_vllm"], found.spec.settings["vllm_mode"]) == (True, "server")
    settings = {**found.spec.settings, **found.trial_environment}
    assert "http://127.0.0.1:8123" in settings.values() or settings["vllm_server_port"] == [8123]
    group = settings.get("vllm_group_port") or settings.get("vllm_server_group_port")
    assert "8124" in found.trial_environment.values() or group in (8124, [8124])


@pytest.mark.parametrize(
    ("name", "size", "replicas"),
    [
        ("open_r1", "--tensor_parallel_size", "--data_parallel_size"),
        ("ms_swift", "--vllm_tensor_parallel_size", "--vllm_data_parallel_size"),
    ],
)
def test_several_workers_of_several_gpus(name: str, size: str, replicas: str, tmp_path: Path) -> None:
    """ms-swift's 7 + 1 has its workers by data parallelism, its 72B models by tensor parallelism."""
    found = other(name, 8, tmp_path, rollout_gpus=4, tensor_parallel_size=2)
    assert (option(found.argv, size), option(found.argv, replicas)) == ("2", "2")
    assert len(found.environment["CUDA_VISIBLE_DEVICES"].split(",")) == 4


def test_ms_swifts_server_has_the_users_own_engine_arguments_beside_the_knobs(tmp_path: Path) -> None:
    own = {"vllm_engine_kwargs": {"limit_mm_per_prompt": 1, "kv_cache_dtype": "auto"}}
    found = other("ms_swift", 4, tmp_path, own, kv_cache_dtype="fp8")
    assert json.loads(option(found.argv, "--vllm_engine_kwargs")) == {"limit_mm_per_prompt": 1, "kv_cache_dtype": "fp8"}
    assert "--model" not in found.argv, "it is of the trial's own folder"
