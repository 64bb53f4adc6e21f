"""A pair of scripts, one that trains and one that serves its rollouts, as one baseline.

Were the pair read wrongly, trial 0 would not be what the user runs: another split, or another engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.commands.start_options import FrameworkOptions, StudyOptions
from autotune.cli.commands.start_request import request_of
from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from tests.support.swift_fields import FIELDS

TRAIN = """\
NPROC_PER_NODE=7 swift rlhf --rlhf_type grpo --model org/model --reward_funcs accuracy --dataset d \\
    --per_device_train_batch_size 4 --num_generations 7 --use_vllm true --vllm_mode server \\
    --vllm_server_host 127.0.0.1 --vllm_max_model_len 100
"""
ROLLOUT = """\
#!/bin/bash
CUDA_VISIBLE_DEVICES=7 \\
swift rollout --model org/model \\
    --vllm_tensor_parallel_size 1 --vllm_data_parallel_size 1 \\
    --vllm_max_model_len 4096 --vllm_gpu_memory_utilization 0.8 --vllm_use_async_engine true
"""
RECIPE = "model_name_or_path: m\nuse_vllm: true\nper_device_train_batch_size: 8\nvllm_gpu_memory_utilization: 0.7\n"
LAUNCH = "CUDA_VISIBLE_DEVICES=3 trl vllm-serve --model m --tensor_parallel_size 1 --max_model_len 2048\n"


def knobs(name: str, text: str, server: str) -> dict[str, object]:
    framework = framework_named(name)
    source = Source(text, "own.yaml" if name == "open_r1" else "train.sh", server=server, server_name="serve.sh")
    fields = FIELDS if name == "ms_swift" else framework.fields_of({})
    return dict(framework.import_config(source, fields, 1, {}).knobs)


def test_ms_swifts_pair_is_one_baseline() -> None:
    found = knobs("ms_swift", TRAIN, ROLLOUT)
    assert (found["rollout_mode"], found["rollout_gpus"], found["micro_batch_size"]) == ("server", 1, 4)
    assert found["gpu_memory_utilization"] == 0.8
    assert found["max_model_len"] == 4096, "the server reads its own, not the trainer's"
    several = ROLLOUT.replace("--vllm_data_parallel_size 1", "--vllm_data_parallel_size 4")
    assert knobs("ms_swift", TRAIN, several)["rollout_gpus"] == 4
    assert knobs("ms_swift", TRAIN, ROLLOUT.replace("--vllm_data_parallel_size 1", ""))["rollout_gpus"] == 1


def test_open_r1s_pair_is_one_baseline() -> None:
    found = knobs("open_r1", RECIPE, LAUNCH)
    assert (found["rollout_gpus"], found["max_model_len"], found["micro_batch_size"]) == (1, 2048, 8)
    assert "gpu_memory_utilization" not in found, "a recipe's is of a colocated engine"


def test_what_a_trials_server_does_without_is_said() -> None:
    framework = framework_named("ms_swift")
    source = Source(TRAIN, "train.sh", server=ROLLOUT, server_name="serve.sh")
    notes = framework.import_config(source, FIELDS, 1, {}).notes
    assert any(note.startswith("serve.sh, line 5: vllm_use_async_engine: ") for note in notes)


@pytest.mark.parametrize(
    ("name", "text", "server", "said"),
    [
        ("ms_swift", TRAIN, "echo hello\n", "serve.sh: expected one command `swift rollout ...`, found none"),
        ("ms_swift", TRAIN, ROLLOUT.replace("0.8", "much"), "serve.sh, line 5: vllm_gpu_memory_utilization: expected"),
        ("ms_swift", TRAIN, ROLLOUT.replace("0.8", "1.8"), "serve.sh, line 5: vllm_gpu_memory_utilization: "),
        (
            "ms_swift",
            TRAIN,
            ROLLOUT.replace("--vllm_use_async_engine true", "--multi_turn_scheduler math"),
            "serve.sh, line 5: multi_turn_scheduler: multi-turn generation: a trial has one turn; remove it",
        ),
        ("ms_swift", TRAIN.replace("server \\", "colocate \\"), ROLLOUT, "serve.sh: it starts a rollout server"),
        ("open_r1", RECIPE, "echo hello\n", "serve.sh: expected one command `trl vllm-serve ...`, found none"),
        ("open_r1", RECIPE, LAUNCH.replace("2048", "long"), "serve.sh: --max_model_len: expected"),
        ("open_r1", f"{RECIPE}vllm_mode: colocate\n", LAUNCH, "serve.sh: it starts a rollout server"),
    ],
)
def test_what_cannot_be_read_is_told_by_the_server_scripts_name(name: str, text: str, server: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        knobs(name, text, server)
    assert said in str(error.value)


def test_the_option_reaches_the_reader_and_is_refused_where_nothing_reads_it(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "serve.sh").write_text(ROLLOUT)
    config, server = tmp_path / "train.sh", tmp_path / "serve.sh"
    request = request_of(StudyOptions(config=config), FrameworkOptions("swift", server=server), "tpe", tmp_path)
    assert (request.server, request.server_name) == (ROLLOUT, str(server))
    trl, swift = (FrameworkOptions(name, server=server) for name in ("trl", "swift"))
    for using, own in ((trl, config), (swift, None)):
        with pytest.raises(UsageError, match="--server is the script that starts a rollout server beside"):
            request_of(StudyOptions(config=own), using, "tpe", tmp_path)
