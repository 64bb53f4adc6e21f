"""What verl's users write in their scripts: a trial does without much of it, and the rest is known, asked for or
refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from autotune.specification.request import Request
from autotune.specification.user_config import with_config
from tests.support.imports import of
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.imported import Imported
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


@pytest.mark.parametrize(
    "value",
    [
        "$HOME/x",
        "${OUT:-$HOME/out}/y",
        "$(date +%s)",
        "`hostname`",
        "${TEAM}_$((RANDOM % 9))",
        "$1",
        "run_$USER-${A:-${B}}",
    ],
)
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


def test_variables_of_a_launch_are_each_trials_own() -> None:
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "ACCELERATE_LOG_LEVEL")
    found = read("", "\n".join(f"export {name}=1" for name in names))
    assert dict(found.knobs) == dict(read("").knobs)
    assert "env" not in found.passthrough
    notes = [note for note in found.notes if "each trial is given" in note]
    assert len(notes) == 1
    assert all(name in notes[0] for name in names)


def test_a_reward_at_its_older_place_is_the_runs_own() -> None:
    """verl writes the older place over the current one, over a trial's own too (``reward_loop.py:59``)."""
    found = read("custom_reward_function.path=my.py custom_reward_function.name=score")
    assert found.rewards == ("my.py:score",)
    assert not any("custom_reward_function" in key for key in found.passthrough)
    whole = "algorithm: {adv_estimator: grpo}\ncustom_reward_function: {path: a.py}\n"
    whole += "actor_rollout_ref: {actor: {use_dynamic_bsz: true}}\n"
    assert import_config(whole, "o.yaml", processes=1).rewards == ("a.py:compute_score",)


@pytest.mark.parametrize("key", ["actor_rollout_ref.rollout.top_p", "actor_rollout_ref.rollout.n"])
def test_what_no_option_gives_is_to_be_written_out(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"{key}=$1")
    assert str(caught.value) == f"run.sh, line 9: {key}: $1 is known to a shell only; write its value out."


def test_a_home_is_that_of_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        read('actor_rollout_ref.model.path="${M:-$HOME/m}"').model == f"{os.path.expanduser('~')}/m" == f"{tmp_path}/m"
    )


def test_the_gpus_of_a_script() -> None:
    visible = "export CUDA_VISIBLE_DEVICES=0,1,2,3"
    counted = 'trainer.n_gpus_per_node=$(echo "$CUDA_VISIBLE_DEVICES" | tr , "\\n" | wc -l)'
    found = import_config(script(counted, visible), "run.sh")
    assert found.processes == 4
    assert "CUDA_VISIBLE_DEVICES" not in found.passthrough.get("env", {})
    assert any("each trial is given the GPUs that the tuner holds" in note for note in found.notes)


@pytest.mark.parametrize(
    "call",
    [
        'exec python3 -m verl.trainer.main_ppo "${RUN[@]}" trainer.nnodes=1',
        'ray job submit --address http://x:8265 --runtime-env a.yaml -- python3 -m verl.trainer.main_ppo "${RUN[@]}"',
        'uv run --extra vllm python3 -m verl.trainer.main_ppo "${RUN[@]}" "$@" $EXTRA_ARGS 2>&1 | tee log.txt',
        'nohup bash -c "python3 -m verl.trainer.main_ppo ${RUN[*]}" &',
        'main() {\n  env A=1 python3 -m verl.trainer.main_ppo "${RUN[@]}" "$@"\n}\nmain "$@"',
        'L=(python3)\nif [ "${UV:-1}" = 1 ]; then L=(uv run x); fi\n"${L[@]}" -m verl.trainer.main_ppo "${RUN[@]}"',
    ],
)
def test_however_verl_is_started(call: str) -> None:
    found = import_config(f"#!/bin/bash\nset -xeuo pipefail\n{MUST}{call}\n", "run.sh", processes=4)
    assert (found.knobs["num_generations"], found.max_completion_length) == (8, 1024)
    assert found.knobs["gradient_accumulation_steps"] == 16


def test_words_of_the_caller_are_told() -> None:
    assert "run.sh, line 9: $EXTRA is not set in the script; a trial is given no words for it." in read("$EXTRA").notes


@pytest.mark.parametrize(("line", "name"), of("what_the_tool_does_not_support_is_refused_by_that_name"))
def test_what_the_tool_does_not_support_is_refused_by_that_name(line: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"actor_rollout_ref.rollout.dtype=strange {line}")
    assert str(caught.value).startswith("run.sh, line 9: ")
    assert f": {name} {'are' if name.endswith('tools') else 'is'} not supported" in str(caught.value)


def test_a_reward_model_that_is_off_and_verls_own_engine_pass() -> None:
    found = read("reward.reward_model.enable=False model_engine=dp actor_rollout_ref.rollout.multi_turn.enable=false")
    assert not [key for key in found.passthrough if "reward_model" in key or "multi_turn" in key]


@pytest.mark.parametrize("module", ["recipe.partial_rollout.main_ppo", "verl.trainer.main_ppo_format", "x_main_ppo.py"])
def test_another_program_is_refused_by_its_name(module: str) -> None:
    with pytest.raises(ConfigError, match=f"run.sh, line 8: {module}: a trial runs verl"):
        import_config(script("").replace("verl.trainer.main_ppo", module), "run.sh")


def test_a_script_that_does_not_start_verl_is_refused_as_one() -> None:
    for text in (
        "#!/bin/sh\nMAIN=verl.trainer.main_ppo\nif [ -f x ]; then MAIN=x; fi\npython -m $MAIN\n",
        "#!/bin/sh\n",
    ):
        with pytest.raises(ConfigError, match="expected a script with a command that runs verl"):
            import_config(text, "run")
    with pytest.raises(ConfigError, match="verl trains with GAE where nothing says otherwise"):
        import_config("python3 -m verl.trainer.main_ppo", "run.sh")
    with pytest.raises(ConfigError, match="line 9: --config-name mine: a trial starts from verl's own"):
        read("--config-name mine")


def test_a_column_of_images_is_told() -> None:
    assert any("data.image_key: a trial's prompts are text" in note for note in read("data.image_key=images").notes)


def test_every_load_format_of_vllm_is_taken() -> None:
    for word in ("auto", "dummy", "safetensors", "sharded_state", "runai_streamer", "fastsafetensors", "tensorizer"):
        assert read(f"actor_rollout_ref.rollout.load_format={word}").knobs["rollout_load_format"] == word
    with pytest.raises(ConfigError, match=r"rollout\.load_format: expected one of auto, dummy"):
        read("actor_rollout_ref.rollout.load_format=safetensor")


def test_rows_of_an_update_are_prompts_times_completions_whatever_shares_a_sequence() -> None:
    """``ppo_mini_batch_size * rollout.n`` over all ranks (verl ``trainer/ppo/v1/trainer_base.py:1724``)."""
    for size in (1, 2, 4):
        knobs = read(f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={size}").knobs
        assert int(knobs["micro_batch_size"]) * int(knobs["gradient_accumulation_steps"]) * (4 // size) == 32 * 8


def test_what_fsdp_keeps_on_the_host_is_not_moved_there() -> None:
    """verl sets it to false itself (``workers/engine/fsdp/transformer_impl.py:440``)."""
    offloads = (
        "actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.offload_policy=True"
    )
    knobs = read(f"actor_rollout_ref.actor.strategy=fsdp2 {offloads}").knobs
    assert (knobs["fsdp_offload"], knobs["rollout_offload_model"]) == (True, False)
    assert read(f"actor_rollout_ref.actor.strategy=fsdp {offloads}").knobs["rollout_offload_model"] is True


def test_a_batch_that_does_not_divide_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"256 rows of an update cannot be shared by 3 ranks .*: 30 or 33 prompts"):
        import_config(script(""), "run.sh", processes=3)
    with pytest.raises(
        ConfigError, match=r"256 rows are no whole micro-batches of 24 .*ppo_micro_batch_size_per_gpu 16"
    ):
        read("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=24")
    packed = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=24 actor_rollout_ref.actor.use_dynamic_bsz=True"
    assert read(packed).knobs["micro_batch_size"] == 64  # nothing is cut by rows


def test_all_faults_are_told_at_once() -> None:
    wrong = "critic.enable=True actor_rollout_ref.rollout.dtype=strange actor_rollout_ref.model.use_remove_padding=16"
    with pytest.raises(ConfigError) as caught:
        read(f"{wrong} actor_rollout_ref.rollout.top_k=$1", "export HF_TOKEN=x")
    lines = str(caught.value).splitlines()
    named = ("critic.enable", "HF_TOKEN", "rollout.top_k", "rollout.dtype", "use_remove_padding")
    assert len(lines) == len(named)
    assert all(any(name in line for line in lines) for name in named)
    assert all(line.startswith("run.sh, line ") for line in lines)


def test_through_the_port() -> None:
    framework = framework_named("verl")
    source = Source(script("trainer.n_gpus_per_node=$1"), "run.sh")
    assert framework.import_config(source, {}, 4, {}).knobs["num_generations"] == 8
    with pytest.raises(UsageError, match="line 9: model_engine: VeOmni is not supported"):
        framework.import_config(Source(script("model_engine=veomni"), "run.sh"), {}, 4, {})


def test_a_script_for_another_engine_is_refused_as_that_where_a_backslash_is_missing() -> None:
    text = "python3 -m verl.trainer.main_ppo --config-name='ppo_veomni_trainer.yaml' a.b=1\n    c.d=2\n"
    with pytest.raises(ConfigError, match=r"line 1: --config-name ppo_veomni_trainer\.yaml: VeOmni is not supported"):
        import_config(text, "run.sh")
    with pytest.raises(ConfigError, match=r"line 1: the command ends here, and c\.d=2 below it"):
        import_config(text.replace("veomni_", ""), "run.sh")
