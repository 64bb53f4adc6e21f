"""The user's own keys: what TRL would refuse late is said early."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.configuration import KnobValue, Resources
from search_spaces.legality import Violation
from search_spaces.legality.passthrough import check_passthrough

BARE: dict[str, KnobValue] = {"micro_batch_size": 8, "num_generations": 8}


def names(found: tuple[Violation, ...]) -> set[str]:
    return {violation.rule for violation in found}


@pytest.mark.parametrize(
    ("settings_", "rule"),
    [
        ({"generation_batch_size": 8, "steps_per_generation": 2}, "generation_size"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"parallelism_config": {"cp_size": 2}}, "sequence_split"),
        ({"eval_strategy": "steps", "per_device_eval_batch_size": 3}, "evaluation"),
        ({"vllm_importance_sampling_clip_min": 4.0, "vllm_importance_sampling_clip_max": 3.0}, "importance_sampling"),
        (
            {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": None},
            "importance_sampling",
        ),
        ({"sync_ref_model": True}, "reference_model"),
        ({"sync_ref_model": True, "beta": 0.1, "use_peft": True}, "reference_model"),
        ({"lora_target_modules": ["q_proj", "lm_head"]}, "adapter_target"),
        ({"max_prompt_length": 512}, "unknown_key"),
        *(({"lora_r": value}, "adapter_rank") for value in (-1, 0, 1.5, "8", True)),
        *(({"loss_type": value}, "unknown_word") for value in ("nope", "GRPO", "", 3, ["grpo"])),
        ({"importance_sampling_level": "row"}, "unknown_word"),
        ({"scale_rewards": "all"}, "unknown_word"),
    ],
)
def test_what_trl_would_refuse_is_said_before_a_trial(settings_: dict[str, Any], rule: str) -> None:
    assert names(check_passthrough(settings_, BARE, Resources())) == {rule}
    assert check_passthrough(settings_, BARE, Resources(framework="verl")) == ()


@pytest.mark.parametrize(
    "settings_",
    [
        {},
        {"generation_batch_size": 8},
        {"eval_strategy": "steps", "per_device_eval_batch_size": 8},
        {"eval_strategy": "no", "per_device_eval_batch_size": 3},
        {"vllm_importance_sampling_mode": "token_truncate"},
        {"sync_ref_model": True, "beta": 0.1},
        {"parallelism_config": {"cp_size": 1}},
        {"lora_target_modules": "all-linear"},
        {"lora_r": 16, "loss_type": "dr_grpo", "importance_sampling_level": "sequence", "scale_rewards": False},
        {"loss_type": "vespo", "scale_rewards": "none", "lora_r": None},
    ],
)
def test_what_trl_accepts_is_accepted(settings_: dict[str, Any]) -> None:
    assert check_passthrough(settings_, BARE, Resources()) == ()


@pytest.mark.parametrize(
    ("rank", "knobs", "refused"),
    [
        (32, {"weight_sync_layered": True}, True),  # verl's engine waits for the first sync unless told otherwise
        (32, {"weight_sync_layered": True, "rollout_load_format": "dummy"}, True),
        (32, {"weight_sync_layered": True, "rollout_load_format": "safetensors"}, False),
        (32, {"weight_sync_layered": False}, False),
        (0, {"weight_sync_layered": True}, False),
    ],
)
def test_verl_collects_an_adapter_by_layers_only_beside_weights_that_were_read(
    rank: int, knobs: dict[str, KnobValue], refused: bool
) -> None:
    settings_ = {"actor_rollout_ref.model.lora_rank": rank}
    found = check_passthrough(settings_, {**BARE, **knobs}, Resources(framework="verl"))
    assert names(found) == ({"layered_sync"} if refused else set())
    assert all("set rollout_load_format to safetensors" in violation.sentence for violation in found)


@pytest.mark.parametrize(
    ("knobs", "log_probs", "refused"),
    [({"engine_logprobs": True}, False, True), ({"engine_logprobs": True}, True, False), ({}, False, False)],
)
def test_verls_old_log_probs_are_the_engines_only_where_it_gives_them(
    knobs: dict[str, KnobValue], log_probs: bool, refused: bool
) -> None:
    key = "actor_rollout_ref.rollout.calculate_log_probs"
    found = check_passthrough({key: log_probs}, {**BARE, **knobs}, Resources(framework="verl"))
    assert names(found) == ({"verl_engine_logprobs"} if refused else set())
    assert check_passthrough({}, {**BARE, **knobs}, Resources(framework="verl")) == (), "verl's own is true"


@pytest.mark.parametrize(
    ("settings_", "refused"), [({}, False), ({"tuner_type": "lora"}, False), ({"tuner_type": "full"}, True)]
)
def test_adapters_alone_are_sent_only_where_adapters_are_trained(settings_: dict[str, Any], refused: bool) -> None:
    """ms-swift trains adapters unless told otherwise."""
    swift = Resources(gpus=1, device="cuda", framework="ms_swift")
    knobs = {**BARE, "rollout_engine": "vllm", "adapter_sync": True}
    assert ("adapter_sync" in names(check_passthrough(settings_, knobs, swift))) is refused
    assert "adapter_sync" not in names(check_passthrough(settings_, BARE, swift))
