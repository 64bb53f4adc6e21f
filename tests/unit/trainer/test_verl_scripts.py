"""What verl's users write in their scripts: a trial does without much of it, and the rest is known, asked for or
refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.specification.request import Request
from autotune.specification.user_config import with_config
from tests.support.imports import of
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.verl.import_config import import_config

MUST = """\
RUN=(
    algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=1024
    actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8
)
"""


def script(run: str, before: str = "") -> str:
    return f'{before}\n{MUST}\npython3 -m verl.trainer.main_ppo "${{RUN[@]}}" \\\n    {run}\n'


def read(run: str, before: str = "") -> Imported:
    return import_config(script(run, before), "run.sh", processes=4)


@pytest.mark.parametrize("value", of("what_a_trial_does_without_never_stops_an_import"))
def test_what_a_trial_does_without_never_stops_an_import(value: str) -> None:
    without = ("trainer.experiment_name", "trainer.project_name", "trainer.default_local_dir", "trainer.logger")
    found = read(" ".join(f"{key}={value}" for key in without), f"export LD_PRELOAD={value}\nexport WANDB_DIR={value}")
    plain = read("")
    assert dict(found.knobs) == dict(plain.knobs)
    known = "HOME" in value
    assert (without[0] in found.passthrough) is known
    notes = [note for note in found.notes if "a trial does without" in note]
    assert len(notes) == (0 if known else 1)
    assert known or all(name in notes[0] for name in (*without, "LD_PRELOAD", "WANDB_DIR"))


def test_prompts_are_the_command_lines_whatever_the_script_calls_them() -> None:
    found = read("data.train_files=\"['$1/a.parquet']\" data.val_files=${VAL:-$2}")
    assert set(found.dataset) == {"data.train_files", "data.val_files"}
    request = Request(framework="verl", config="x", config_name="run.sh", model="org/name", folder="/")
    with pytest.raises(UsageError, match="give them with --data"):
        with_config(request, found, {}, 4)
    assert with_config(replace(request, data="/p.jsonl"), found, {}, 4).dataset == {}


@pytest.mark.parametrize(
    ("key", "field", "given", "option"),
    [
        ("actor_rollout_ref.model.path", "model", "org/name", "--model"),
        ("data.max_prompt_length", "max_prompt_length", 64, "--max-prompt-length"),
        ("data.max_response_length", "max_completion_length", 64, "--max-completion-length"),
        ("reward.custom_reward_function.path", "rewards", (RewardSpec("math_verify", "m"),), "--reward"),
    ],
)
def test_what_a_trial_needs_is_asked_for_by_line_and_option(key: str, field: str, given: object, option: str) -> None:
    found = read(f"{key}=$1")
    assert found.lines[key] == 9
    request = Request(
        framework="verl", config="x", config_name="run.sh", data="/p.jsonl", folder="/", model="org/name",
        max_prompt_length=1, max_completion_length=1, rewards=(RewardSpec("math_verify", "m"),),
    )  # fmt: skip
    lacking = replace(request, **{field: type(given)() if isinstance(given, (str, tuple)) else None})
    with pytest.raises(UsageError) as caught:
        with_config(lacking, found, {}, 4)
    assert f"run.sh, line 9: {key}: $1 is known to a shell only; give {option}" in str(caught.value)
    assert getattr(with_config(replace(lacking, **{field: given}), found, {}, 4), field) == given


def test_a_task_has_a_reward_of_its_own() -> None:
    found = read("reward.custom_reward_function.path=$1")
    request = Request(framework="verl", config="x", config_name="run.sh", task="chain_sum", folder="/", model="a/b")
    assert with_config(request, found, {}, 4).rewards == ()


def test_a_knob_that_only_a_shell_knows_is_asked_for_and_set() -> None:
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    found = read(f"{key}=$1 actor_rollout_ref.actor.fsdp_config.param_offload=$2")
    request = Request(
        framework="verl", config="x", config_name="run.sh", data="/p.jsonl", folder="/", model="org/name",
        rewards=(RewardSpec("math_verify", "m"),), baseline={"rollout_offload_model": True},
    )  # fmt: skip
    with pytest.raises(UsageError) as caught:
        with_config(request, found, {}, 4)
    sentence = (
        f"run.sh, line 9: {key}: $1 is known to a shell only; give --set gpu_memory_utilization=..., or write its"
    )
    assert str(caught.value) == f"{sentence} value out."
    given = replace(request, baseline={"rollout_offload_model": True, "gpu_memory_utilization": 0.4})
    assert with_config(given, found, {}, 4).baseline["gpu_memory_utilization"] == 0.4


def test_a_home_is_that_of_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        read('actor_rollout_ref.model.path="${M:-$HOME/m}"').model == f"{os.path.expanduser('~')}/m" == f"{tmp_path}/m"
    )


@pytest.mark.parametrize(("line", "name"), of("what_the_tool_does_not_support_is_refused_by_that_name"))
def test_what_the_tool_does_not_support_is_refused_by_that_name(line: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"actor_rollout_ref.rollout.dtype=strange {line}")
    assert str(caught.value).startswith("run.sh, line 9: ")
    assert f": {name} {'are' if name.endswith('tools') else 'is'} not supported" in str(caught.value)
