"""A user's own recipe, accelerate file and launch: what becomes of them, and one sentence for each mistake."""

from __future__ import annotations

import json

import pytest

from tests.support.imports import of
from tests.support.openr1_cases import OWN
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.open_r1.import_config import import_config


def test_open_r1s_own_files_are_understood() -> None:
    accelerate = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n" + (
        "  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: true\n"
    )
    found = import_config(OWN, "recipe.yaml", accelerate=accelerate)
    assert dict(found.knobs) == {
        "attn_implementation": "sdpa",
        "checkpointing_reentrant": False,
        "gradient_accumulation_steps": 4,
        "gradient_checkpointing": True,
        "master_weights": "bf16",
        "micro_batch_size": 16,
        "num_generations": 16,
        "offload_optimizer": "none",
        "offload_parameters": "none",
        "precision": "bf16",
        "rollout_engine": "vllm",
        "zero_stage": 3,
    }
    assert found.processes == 8
    assert any("vllm_device: Open-R1 has no such key and passes over it" in note for note in found.notes)
    assert found.dataset == {"dataset_name": "open-r1/OpenR1-Math-220k", "dataset_prompt_column": "problem"}
    assert found.passthrough["learning_rate"] == 2e-5
    assert set(found.passthrough) == {"learning_rate", "model_revision", "system_prompt", "reward_weights"}


def test_a_servers_share_is_not_taken_from_the_recipe() -> None:
    text = OWN + "vllm_gpu_memory_utilization: 0.7\n"
    launch = "trl vllm-serve --model m --tensor_parallel_size=2 \\\n  --data-parallel-size 2 &\n"
    served = import_config(text, "recipe.yaml", server=launch)
    assert served.knobs["rollout_gpus"] == 4
    assert served.knobs["tensor_parallel_size"] == 2
    assert "gpu_memory_utilization" not in served.knobs
    assert any("vllm_gpu_memory_utilization" in note for note in served.notes)
    colocated = import_config(text + "vllm_mode: colocate\n", "recipe.yaml", server=launch)
    assert colocated.knobs["gpu_memory_utilization"] == 0.7
    assert "rollout_gpus" not in colocated.knobs


@pytest.mark.parametrize(("option", "processes"), [("--num_processes=3 ", 3), ("", 8)])
def test_the_launch_beside_the_server_counts_before_the_accelerate_file(option: str, processes: int) -> None:
    launch = (
        "CUDA_VISIBLE_DEVICES=3 trl vllm-serve --model m &\n"
        f"accelerate launch --config_file zero2.yaml {option}src/open_r1/grpo.py --config recipe.yaml\n"
    )
    accelerate = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
    found = import_config(OWN, "recipe.yaml", accelerate=accelerate, server=launch)
    assert (found.processes, found.knobs["rollout_gpus"]) == (processes, 1)


@pytest.mark.parametrize(("text", "says"), of("a_mistake_is_one_sentence_with_its_line"))
def test_a_mistake_is_one_sentence_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        import_config(text, "recipe.yaml", processes=8)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("accelerate", "says"),
    [
        ("distributed_type: FSDP\n", "accelerate.yaml, line 1: distributed_type: .*not with FSDP"),
        ("num_processes: 0\n", "accelerate.yaml, line 1: num_processes: expected a whole number of at least 1, got 0"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 5}\n", "deepspeed_config.zero_stage: .*got 5"),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: d.json}\n",
            "d.json was not given",
        ),
    ],
)
def test_a_mistake_in_the_accelerate_file_names_its_key(accelerate: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        import_config(OWN, "recipe.yaml", accelerate=accelerate)


SHARDED = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n"
BARE = "model_name_or_path: m\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"


@pytest.mark.parametrize(
    ("recipe", "kind", "precision"),
    [("", "MULTI_GPU", "bf16"), ("bf16: false\n", "'NO'", "bf16"), ("fp16: true\n", "MULTI_GPU", "fp16")],
)
def test_the_launchers_precision_holds_where_the_recipe_turns_none_on(recipe: str, kind: str, precision: str) -> None:
    """``training_args.py:1802`` of transformers 4.52."""
    accelerate = f"distributed_type: {kind}\nmixed_precision: bf16\n"
    found = import_config(BARE + recipe, "recipe.yaml", accelerate=accelerate)
    assert found.knobs["precision"] == precision
    assert found.notes == ()


def test_beside_deepspeed_transformers_wants_the_precision_twice() -> None:
    """It compares ``bf16.enabled`` with the recipe's own (``integrations/deepspeed.py``), which a trial writes."""
    found = import_config(BARE, "recipe.yaml", accelerate=SHARDED)
    assert found.knobs["precision"] == "bf16"
    assert any("line 3: mixed_precision: " in note and "bf16: true too" in note for note in found.notes)
    with pytest.raises(ConfigError, match="line 3: mixed_precision: bf16 here and bf16 false in the recipe differ"):
        import_config(BARE + "bf16: false\n", "recipe.yaml", accelerate=SHARDED)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("  gradient_accumulation_steps: 1\n", "line 6: .*: 1 here and gradient_accumulation_steps 4 differ"),
        ("  gradient_clipping: 0.3\n", "line 6: .*: 0.3 here and max_grad_norm 1.0 differ"),
        ("  deepspeed_moe_layer_cls_names: Block\n", "line 6: .*moe_layer_cls_names: a trial's DeepSpeed is not told"),
        ("  offload_optimizer_device: elsewhere\n", "line 6: deepspeed_config.offload_optimizer_device: expected"),
        ("dynamo_config: {dynamo_backend: INDUCTOR}\n", "line 6: dynamo_config: a trial compiles by torch_compile"),
        ("parallelism_config: {sp_size: 2}\n", "line 6: parallelism_config: a trial splits no sequences"),
        ("num_procs: 8\n", "line 6: accelerate has no key num_procs; did you mean num_processes"),
    ],
)
def test_a_key_of_the_accelerate_file_is_honoured_or_refused_by_its_line(more: str, says: str) -> None:
    import_config(BARE, "recipe.yaml", accelerate=SHARDED)
    with pytest.raises(ConfigError, match=says):
        import_config(BARE, "recipe.yaml", accelerate=SHARDED + more)


def test_a_deepspeed_file_is_honoured_or_refused_by_its_place() -> None:
    accelerate = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: d.json}\n"
    zero = {"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 1000}, "gradient_clipping": 1.0}

    def read(settings: dict[str, object], more: str = "") -> dict[str, object]:
        files = {"deepspeed_config_file": json.dumps({**zero, **settings})}
        return dict(import_config(BARE, "recipe.yaml", accelerate=accelerate + more, files=files).knobs)

    assert read({})["zero_prefetch_bucket"] == 1000
    for settings, says in (
        ({"activation_checkpointing": {"partition_activations": True}}, "line 2: .*activation_checkpointing.partition"),
        ({"optimizer": {"type": "AdamW"}}, "line 2: .*optimizer.type"),
        ({"train_batch_size": 7}, "line 2: .*train_batch_size: 7 here and per_device_train_batch_size 2 x"),
        ({"gradient_clipping": 0.5}, "line 2: .*gradient_clipping: 0.5 here and max_grad_norm 1.0 differ"),
    ):
        with pytest.raises(ConfigError, match=says):
            read(settings)
    with pytest.raises(ConfigError, match="line 3: mixed_precision: accelerate refuses it beside"):
        read({}, "mixed_precision: bf16\n")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "accelerate launch --config_file zero3.yaml src/open_r1/grpo.py --config recipe.yaml --seed 1",
            "run.sh, line 1: the keys are in recipe.yaml; give that file, with --accelerate zero3.yaml, and write",
        ),
        (
            '#!/bin/bash\nCMD="src/open_r1/grpo.py --config $1"\nbash -c "accelerate launch --config_file $2 $CMD"',
            "run.sh, line 3: the keys are in $1; give that file, with --accelerate $2.",
        ),
        (
            "torchrun src/open_r1/grpo.py --bf16",
            "run.sh, line 1: Open-R1's keys are read from a recipe; write the options",
        ),
        ("echo nothing", "run.sh: Open-R1's keys are read from a recipe"),
    ],
)
def test_a_script_names_the_recipe_to_give(script: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_config(script, "run.sh")
    assert str(caught.value).startswith(says)
