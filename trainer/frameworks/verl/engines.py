"""Training and rollout engines of verl; engines without support are refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TRAINING: Mapping[str, str] = {
    "mlite": "Megatron Lite",
    "veomni": "VeOmni",
    "torchtitan": "TorchTitan",
    "automodel": "NeMo AutoModel",
    "mindspeed": "MindSpeed",
    "fsdp_turbo": "FSDP Turbo",
    "turbo_config": "FSDP Turbo",
}
"""Word in verl's engines and strategies -> name of the engine."""
_ROLLOUT: Mapping[str, str] = {"trtllm": "TensorRT-LLM", "hf": "generation by transformers"}
ROLLOUT_NAME = "actor_rollout_ref.rollout.name"
_DEVICES = ("trainer.device", "actor_rollout_ref.actor.device", "device")
_STRATEGY = re.compile(r"actor_rollout_ref\.(actor|ref)\.(.*\.)?strategy")


def files_refusal(word: str) -> str | None:
    """Returns the reason why no trial starts from verl's files named ``word``; ``None`` if a trial may."""
    if re.search(r"multi_?turn|tool", word, re.IGNORECASE):
        return "multi-turn and tools are not supported: a trial gives each completion one length"
    return engine_refusal(word)


def engine_refusal(word: str) -> str | None:
    """Returns the reason why no trial trains with the engine named ``word``; ``None`` for FSDP or no engine."""
    found = next((name for engine, name in _TRAINING.items() if engine in word.lower()), None)
    return None if found is None else f"{found} is not supported: a verl trial trains with FSDP (model_engine dp)"


def part_refusal(key: str, value: Any) -> str | None:
    """Returns the reason why no trial has the engine or device of an override; ``None`` if it sets neither."""
    if key == "model_engine" or _STRATEGY.fullmatch(key):
        return engine_refusal(str(value))
    if "@" in key and not str(value).startswith("dp_"):
        return engine_refusal(str(value)) or "a trial is made of the files that verl's ppo_trainer names; remove it"
    if key == ROLLOUT_NAME and value in _ROLLOUT:
        return f"{_ROLLOUT[value]} is not supported: verl's vLLM and SGLang are"
    if (key in _DEVICES and str(value).lower() == "npu") or (key == "global_profiler.tool" and value == "npu"):
        return "an NPU is not supported: a trial runs on NVIDIA GPUs"
    inside = next((part for part in key.split(".") if part in _TRAINING), "")
    return engine_refusal(inside) if inside and value is not None else None
