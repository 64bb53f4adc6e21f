"""LoRA adapters of a configuration, read from each framework's own keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.frameworks import facts_of

VERL = "actor_rollout_ref.model."
RANKS = ("lora_r", "lora_rank", VERL + "lora_rank")
TARGETS = ("lora_target_modules", "target_modules", VERL + "target_modules")
QUERY_AND_VALUE = 2
"""Projections a layer that PEFT adapts by default."""
ALL_LINEAR = 7
"""Projections of a layer of Llama's kind."""


def is_lora(passthrough: Mapping[str, Any], framework: str) -> bool:
    """Tells whether ``passthrough`` trains adapters; ms-swift trains adapters by default, verl with a rank above 0."""
    unset = "lora" if facts_of(framework).trains_adapters_by_default else ""
    tuner = passthrough.get("tuner_type", passthrough.get("train_type", unset))
    by_rank = bool(passthrough.get(VERL + "lora_rank") or passthrough.get(VERL + "lora_adapter_path"))
    return bool(passthrough.get("use_peft")) or tuner in ("lora", "qlora") or by_rank


def adapted_projections(passthrough: Mapping[str, Any], framework: str) -> int:
    """Returns the number of projections of a layer that have an adapter."""
    targets = next((passthrough[key] for key in TARGETS if passthrough.get(key)), None)
    if targets is None:
        return ALL_LINEAR if facts_of(framework).adapts_all_linear else QUERY_AND_VALUE
    names = [targets] if isinstance(targets, str) else list(targets)
    return ALL_LINEAR if any("all-linear" in str(name) for name in names) else len(names)
