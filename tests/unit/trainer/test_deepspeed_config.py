"""DeepSpeed gets exactly what the knobs say, and nothing is left to its defaults of another day."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.deepspeed import CPU_BUCKET, PLACES, at, deepspeed_config
from trainer.frameworks.trl.keys import training_keys

EVERY: dict[str, KnobValue] = {
    "zero_stage": 3,
    "offload_optimizer": "cpu",
    "offload_parameters": "cpu",
    "zero_overlap": False,
    "zero_contiguous_gradients": False,
    "zero_reduce_bucket": 11,
    "zero_allgather_bucket": 12,
    "zero_prefetch_bucket": 0,
    "reduce_precision": "bf16",
}


def leaves(value: Any) -> list[Any]:
    return [x for v in value.values() for x in leaves(v)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize("knob", sorted(PLACES))
def test_every_knob_is_written_at_the_place_where_it_is_read(knob: str) -> None:
    assert at(deepspeed_config(EVERY, "cuda"), PLACES[knob]) == EVERY[knob]


def test_without_zero_there_is_no_deepspeed() -> None:
    assert deepspeed_config({}, "cuda") == {}
    assert deepspeed_config({**EVERY, "zero_stage": 0}, "cpu") == {}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_what_grpo_config_says_already_is_left_to_the_framework(stage: int, device: str) -> None:
    found = deepspeed_config({"zero_stage": stage}, device)
    auto = {key for key, value in found.items() if "auto" in leaves({key: value})}
    batch = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
    assert auto == batch | {"gradient_clipping", "bf16", "fp16"}
    assert "auto" not in leaves(found["zero_optimization"])
    assert None not in leaves(found)


def test_a_stage_holds_only_what_it_reads() -> None:
    first, second = (deepspeed_config({**EVERY, "zero_stage": stage}, "cuda") for stage in (1, 2))
    assert "offload_optimizer" not in first["zero_optimization"]
    assert "offload_optimizer" in second["zero_optimization"]
    assert not [key for key in second["zero_optimization"] if key.startswith("stage3") or key == "offload_param"]


def test_an_unset_bucket_is_deepspeeds_own_but_small_on_a_cpu() -> None:
    """2 GB reserved by each rank would meet the memory backstop of a CPU trial whatever the model's size."""
    gpu = deepspeed_config({"zero_stage": 3}, "cuda")["zero_optimization"]
    cpu = deepspeed_config({"zero_stage": 3}, "cpu")["zero_optimization"]
    for key in ("reduce_bucket_size", "allgather_bucket_size"):
        assert (gpu[key], cpu[key]) == (500_000_000, CPU_BUCKET)
    assert gpu["stage3_prefetch_bucket_size"] == 50_000_000


def test_the_trainers_own_optimizer_steps() -> None:
    """With an optimizer of its own DeepSpeed would not look at the knob ``optimizer``."""
    found = deepspeed_config({"zero_stage": 2, "optimizer": "adamw_torch"}, "cuda")
    assert "optimizer" not in found
    assert found["zero_allow_untested_optimizer"] is True


def test_ddp_and_gathering_have_keys_of_grpo_config() -> None:
    found = training_keys({"zero_stage": 3, "ddp_bucket_mib": 7, "zero3_gather_for_generation": False}, device="cuda")
    assert found["ddp_bucket_cap_mb"] == 7
    assert found["ds3_gather_for_generation"] is False
    assert found["deepspeed"] == deepspeed_config({"zero_stage": 3}, "cuda")


def test_fsdp_is_rendered() -> None:
    """Not yet run on a GPU: this is what the trainer would be given."""
    knobs: dict[str, KnobValue] = {"fsdp": "fsdp2", "fsdp_reshard_after_forward": False, "fsdp_offload": True}
    found = training_keys(knobs, device="cuda")
    assert found["fsdp"] is True
    assert found["fsdp_config"] == {"version": 2, "reshard_after_forward": False, "cpu_offload": True}
    assert not found.get("deepspeed")
