"""A user's own ``swift rlhf`` is understood, and what is wrong with it is told with its line."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.knobs import defaults
from tests.support.imports import of
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.shell import Command, commands
from trainer.frameworks.common.shell_syntax import ShellError
from trainer.frameworks.ms_swift.import_config import import_config, named_files, read_keys

GSM8K = r"""# 4 GPUs
export CUDA_VISIBLE_DEVICES=0,1,2,3
MODEL=Qwen/Qwen2.5-1.5B-Instruct
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \
NPROC_PER_NODE=4 \
swift rlhf \
    --rlhf_type grpo \
    --model $MODEL \
    --external_plugins "examples/plugin.py" \
    --reward_funcs gsm8k_accuracy format \
    --reward_weights 1 0.5 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.4 \
    --vllm_max_model_len 10240 \
    --vllm_engine_kwargs '{"max_num_batched_tokens": 8192, "compilation_config": {"mode": "NONE"}, "seed": 1}' \
    --sleep_level 1 \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --dataset 'openai/gsm8k#1000' \
    --max_length 2048 --max_completion_length 8192 \
    --per_device_train_batch_size 4 --gradient_accumulation_steps=4 \
    --num-generations 8 \
    --learning_rate 1e-6 \
    --deepspeed zero2 \
    --loss_type grpo \
    --log_completions true
"""


def test_a_published_script_is_understood() -> None:
    found = import_config(GSM8K, "gsm8k.sh", FIELDS)
    assert found.knobs == {
        "rollout_engine": "vllm",
        "rollout_mode": "colocate",
        "gpu_memory_utilization": 0.4,
        "max_model_len": 10240,
        "max_num_batched_tokens": 8192,
        "vllm_compile_mode": "none",
        "sleep_level": 1,
        "master_weights": "bf16",
        "precision": "bf16",
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
        "zero_stage": 2,
        "zero_overlap": False,
        "zero_contiguous_gradients": True,
        "zero_reduce_bucket": 200_000_000,
        "zero_allgather_bucket": 200_000_000,
        "offload_optimizer": "none",
        "expandable_segments": True,
    }
    assert (found.model, found.processes, found.max_completion_length) == ("Qwen/Qwen2.5-1.5B-Instruct", 4, 8192)
    assert found.rewards == ("gsm8k_accuracy", "format")
    assert found.dataset == {"dataset": ["openai/gsm8k#1000"]}
    assert found.passthrough["vllm_engine_kwargs"] == {"seed": 1}
    assert found.passthrough["external_plugins"] == ["examples/plugin.py"]
    assert found.lines["model"] == 8


def test_what_a_script_leaves_out_is_what_ms_swift_does_then() -> None:
    """The objective is said whole, because ms-swift's own values are not TRL's."""
    own = import_config("swift rlhf --rlhf_type grpo --model m --dataset d.jsonl", "run.sh", FIELDS).passthrough
    assert (own["tuner_type"], own["beta"]) == ("lora", 0.04)
    assert ("temperature" in own, defaults("ms_swift")["temperature"]) == (False, FIELDS["temperature"].default)
    assert (own["learning_rate"], own["loss_type"], own["scale_rewards"]) == (1e-4, "grpo", "group")
    assert (own["weight_decay"], own["adam_beta2"], own["lr_scheduler_type"]) == (0.1, 0.95, "cosine")
    full = import_config("swift rlhf --rlhf_type grpo --model m --tuner_type full", "run.sh", FIELDS).passthrough
    assert full["learning_rate"] == 1e-5


def test_a_server_beside_the_training_is_understood() -> None:
    script = (
        "CUDA_VISIBLE_DEVICES=6,7 swift rollout --model m --vllm_data_parallel_size 2 --vllm_max_num_seqs 64 &\n"
        "NPROC_PER_NODE=6 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 swift rlhf --rlhf_type grpo --model m --use_vllm true "
        "--vllm_mode server --vllm_server_host 127.0.0.1 --vllm_server_port 8000\n"
    )
    found = import_config(script, "run.sh", FIELDS)
    assert found.knobs["rollout_gpus"] == 2
    assert found.knobs["rollout_data_parallel_size"] == 2
    assert found.knobs["max_num_seqs"] == 64
    assert found.processes == 6
    assert any("server of its own" in note for note in found.notes)


def test_a_generation_is_counted_in_the_scripts_own_processes() -> None:
    text = (
        "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model m --per_device_train_batch_size 4 "
        "--sequence_parallel_size 2 --gradient_accumulation_steps 3 --generation_batch_size 24"
    )
    knobs = import_config(text, "run.sh", FIELDS).knobs
    assert knobs["gradient_accumulation_steps"] == 6
    assert knobs["steps_per_generation"] == 6


def test_yaml_and_json_say_the_same_as_a_script() -> None:
    arguments = {
        "rlhf_type": "grpo", "model": "m", "reward_funcs": ["accuracy"], "num_generations": 4, "beta": 0.0,
        "bf16": True, "torch_dtype": "bfloat16", "vllm_engine_kwargs": {"kv_cache_dtype": "fp8"}, "use_vllm": True,
        "vllm_mode": "colocate", "ENV": {"NPROC_PER_NODE": 2},
    }  # fmt: skip
    as_json = import_config(json.dumps(arguments), "run.json", FIELDS)
    as_yaml = import_config("\n".join(f"{k}: {json.dumps(v)}" for k, v in arguments.items()), "run.yaml", FIELDS)
    script = (
        "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model m --reward_funcs accuracy --num_generations 4 --beta 0.0 "
        '--bf16 true --torch_dtype bfloat16 --vllm_engine_kwargs \'{"kv_cache_dtype": "fp8"}\' --use_vllm true '
        "--vllm_mode colocate"
    )
    as_script = import_config(script, "run.sh", FIELDS)
    assert as_json.knobs == as_yaml.knobs == as_script.knobs
    assert as_json.passthrough == as_yaml.passthrough == as_script.passthrough
    assert as_json.processes == as_yaml.processes == as_script.processes == 2


def test_a_named_file_is_read_by_the_caller() -> None:
    text = "swift rlhf --rlhf_type grpo --model m \\\n --deepspeed ds.json"
    assert named_files(text, "run.sh") == {"deepspeed": ("ds.json", 2)}
    config = json.dumps({"zero_optimization": {"stage": 1, "round_robin_gradients": True}})
    found = import_config(text, "run.sh", FIELDS, files={"deepspeed": config})
    assert found.knobs["zero_stage"] == 1
    assert found.passthrough["deepspeed"] == {"zero_optimization": {"round_robin_gradients": True}}
    with pytest.raises(ConfigError, match=r"run\.sh, line 2: deepspeed: expected zero0"):
        import_config(text, "run.sh", FIELDS)
    assert read_keys(text, "run.sh")["model"] == ["m"]


BASE = "swift rlhf --rlhf_type grpo --model m "


@pytest.mark.parametrize(("text", "said"), of("what_is_wrong_is_told_in_one_sentence"))
def test_what_is_wrong_is_told_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_config(text, "run.sh", FIELDS)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_in_a_file_is_told_too() -> None:
    with pytest.raises(ConfigError, match=r"a\.yaml, line 2: model: it has no value"):
        import_config("rlhf_type: grpo\nmodel:\n", "a.yaml", FIELDS)


@examples(100, 300)
@given(st.text(st.sampled_from("ab ='\"\\\n$(){}`#;&|-swift rlhf"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    found: tuple[Command, ...] = ()
    with contextlib.suppress(ShellError):
        found = commands(text)
    for command in found:
        for word in command.words:
            assert 0 <= word.start < word.end <= len(text)


@examples(60, 200)
@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12), min_size=1, max_size=6))
def test_quoted_words_are_read_as_a_shell_reads_them(words: list[str]) -> None:
    import shlex  # noqa: PLC0415

    text = shlex.join(["run", *words])
    assert [word.text for word in commands(text)[0].words] == ["run", *words]


@pytest.mark.parametrize(("launcher", "processes"), of("the_launchers_processes_are_counted"))
def test_the_launchers_processes_are_counted(launcher: str, processes: int) -> None:
    found = import_config(f"{launcher} --rlhf_type grpo --model m", "run.sh", FIELDS)
    assert (found.processes, found.notes) == (processes, ())


@pytest.mark.parametrize(
    ("launcher", "word"),
    [
        ("torchrun --nproc_per_node 8 --nnodes ${WORLD_SIZE} swift/cli/rlhf.py", "nnodes: ${WORLD_SIZE}"),
        ("torchrun --nproc_per_node gpu swift/cli/rlhf.py", "nproc_per_node: gpu"),
        ("NPROC_PER_NODE=8 NNODES=$NODES swift rlhf", "NNODES: $NODES"),
    ],
)
def test_a_number_of_processes_that_only_a_shell_knows_is_told(launcher: str, word: str) -> None:
    found = import_config(f"{launcher} --rlhf_type grpo --model m", "run.sh", FIELDS)
    assert found.processes == 0
    assert [word in note and "--effective-batch N says otherwise" in note for note in found.notes] == [True]


def test_what_a_trial_does_without_never_stops_an_import() -> None:
    text = "X=$(date) swift rlhf --rlhf_type grpo --output_dir $HOME/out --dataset $DATA --model m --run_name $(date)"
    found = import_config(text, "run.sh", FIELDS)
    assert not {"output_dir", "run_name", "dataset"} & {*found.passthrough, *found.dataset}
    names = {note.split(": ")[1] for note in found.notes if "a trial does without it" in note}
    assert names == {"X", "output_dir", "dataset", "run_name"}
    for more in ("--output_dir out $MORE", "--num_generations 8 $G", "--external_plugins $HOME/p.py"):
        with pytest.raises(ConfigError, match="known to a shell only"):
            import_config(f"swift rlhf --rlhf_type grpo {more}", "run.sh", FIELDS)


def test_the_same_run_on_each_machine_is_one_run() -> None:
    runs = [f"NNODES=2 NODE_RANK={rank} NPROC_PER_NODE=4 {BASE} --beta 0.1" for rank in (0, 1)]
    assert import_config("\n".join(runs), "run.sh", FIELDS).processes == 8
    with pytest.raises(ConfigError, match="found 2"):
        import_config("\n".join([runs[0], runs[1].replace("0.1", "0.2")]), "run.sh", FIELDS)


def test_a_revision_and_the_data_of_evaluation_are_kept() -> None:
    text = f"{BASE} --model_revision step-100 --val_dataset v.jsonl --split_dataset_ratio 0.1 --quant_bits 4"
    own = import_config(text, "run.sh", FIELDS).passthrough
    kept = {"model_revision": "step-100", "val_dataset": ["v.jsonl"], "split_dataset_ratio": 0.1, "quant_bits": 4}
    assert {key: own.get(key) for key in kept} == kept
    with pytest.raises(ConfigError, match="quant_bits: expected one of 1, 2, 3, 4, 8, float8, got 5"):
        import_config(f"{BASE} --quant_bits 5", "run.sh", FIELDS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{BASE} --micro_batch_size 2", "no argument micro_batch_size; it belongs to Megatron-SWIFT"),
        (f"{BASE} --fsdp 'full_shard auto_wrap'", "got full_shard auto_wrap; fsdp2 is its full_shard auto_wrap"),
        (f"{BASE} --use_lmdeploy false", "no argument use_lmdeploy; LMDeploy was removed in 3.5"),
        (f"{BASE} --multi_turn_scheduler x", "multi_turn_scheduler: multi-turn generation: a trial has one turn"),
    ],
)
def test_what_a_trial_cannot_run_is_refused_by_its_name(text: str, said: str) -> None:
    assert not named_files(text, "run.sh") if text.startswith("swift") else True
    with pytest.raises(ConfigError) as caught:
        import_config(text, "run.sh", FIELDS)
    assert said in str(caught.value)


def test_deepspeeds_second_word_must_be_the_arguments_own() -> None:
    zero = {"zero_optimization": {"stage": 2}, "train_batch_size": 16, "gradient_clipping": 1.0}
    text = f"NPROC_PER_NODE=4 {BASE} --per_device_train_batch_size 4 --deepspeed '{json.dumps(zero)}'"
    assert import_config(text, "run.sh", FIELDS, 2).knobs["zero_stage"] == 2
    for more, said in (
        ("--max_grad_norm 0.5", "gradient_clipping: 1.0 here and max_grad_norm 0.5 differ"),
        ("--gradient_accumulation_steps 2", "train_batch_size: 16 here and per_device_train_batch_size 4 x"),
    ):
        with pytest.raises(ConfigError, match=said):
            import_config(f"{text} {more}", "run.sh", FIELDS)
