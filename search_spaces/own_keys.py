"""Properties that the user's own keys set: terms of the loss, quantization, speculative decoding and adapters.

If a term is averaged over each micro-batch, the micro-batch size changes learning: measured on TRL 1.16's trainer
(docs/decisions/0013-parity.md), read from ms-swift 4.6.0's (rlhf_trainers/grpo_trainer.py, _compute_loss_and_metrics).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.frameworks import facts_of


def per_micro_batch(framework: str, settings: Mapping[str, Any]) -> str:
    """Returns the key and value in the user's ``settings`` that average a term over micro-batches; empty for none.

    A mixture of experts also has such a term, its router's loss; only ``router_aux_loss_coef`` shows it here.
    """
    if not facts_of(framework).averages_micro_batches:
        return ""
    for key, resting in _RESTING.items():
        value = settings.get(key)
        if value is not None and value != resting:
            return f"{key} {str(value).lower() if isinstance(value, bool) else value}"
    loss = settings.get("loss_type")
    return f"loss_type {loss}" if loss in _AVERAGED else ""


def quantized(settings: Mapping[str, Any]) -> str:
    """Returns the quantization that bitsandbytes loads the model in, ``4 bit`` or ``8 bit``; empty for none.

    TRL and Open-R1 say ``load_in_4bit`` and ``load_in_8bit``, ms-swift ``quant_bits`` (of ``quant_method bnb``).
    """
    bits = settings.get("quant_bits") if settings.get("quant_method") == "bnb" else None
    if settings.get("load_in_4bit") is True or str(bits) == "4":
        return "4 bit"
    return "8 bit" if settings.get("load_in_8bit") is True or str(bits) == "8" else ""


def not_guessed(framework: str, settings: Mapping[str, Any]) -> str:
    """Returns the key and value in the user's ``settings`` that forbid speculative decoding; empty for none.

    vLLM refuses it with ``min_p`` and ``logit_bias`` (0.31, vllm/sampling_params.py:1112). The user's own speculative
    decoding stays unchanged.
    """
    own = settings.get("generation_kwargs")
    for place, before in ((settings, ""), (own if isinstance(own, Mapping) else {}, "generation_kwargs.")):
        for key in ("min_p", "logit_bias"):
            if place.get(key):
                return f"{before}{key} {place[key]}"
    key = _OWN_GUESSES.get(framework, "")
    if inside(settings, key):
        return f"a {key} of your own"
    return f"{_MTP} true" if framework == "verl" and settings.get(_MTP) is True else ""


def inside(settings: Mapping[str, Any], key: str) -> Any:
    """Returns the value at a dotted ``key`` of nested or dotted settings; ``None`` if it is absent."""
    if key in settings:
        return settings[key]
    for name, value in settings.items():
        if isinstance(value, Mapping) and key.startswith(f"{name}."):
            return inside(value, key.removeprefix(f"{name}."))
    return None


_OWN_GUESSES: Mapping[str, str] = {
    "ms_swift": "vllm_engine_kwargs.speculative_config",
    "verl": "actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config",
}
_MTP = "actor_rollout_ref.model.mtp.enable_rollout"
"""Key for speculation by the model's own heads (verl 0.9.1, workers/rollout/vllm_rollout/vllm_async_server.py:377)."""

_AVERAGED = ("bnpo", "real")
"""Losses that average over micro-batches; ``real``, of ms-swift, compares the groups within a micro-batch."""


_RESTING: Mapping[str, object] = {
    "entropy_coef": 0,
    "use_adaptive_entropy": False,
    "top_entropy_quantile": 1,
    "router_aux_loss_coef": 0,
}
"""Key -> value at which the key adds no term to the loss."""


VERL = "actor_rollout_ref.model."
RANKS = ("lora_r", "lora_rank", VERL + "lora_rank")
TARGETS = ("lora_target_modules", "target_modules", VERL + "target_modules")
QUERY_AND_VALUE = 2
"""Projections per layer that PEFT adapts by default."""
ALL_LINEAR = 7
"""Linear projections per layer of a model like Llama."""


def is_lora(passthrough: Mapping[str, Any], framework: str) -> bool:
    """Tells whether ``passthrough`` trains adapters; ms-swift trains adapters by default, verl with a rank above 0."""
    unset = "lora" if facts_of(framework).trains_adapters_by_default else ""
    tuner = passthrough.get("tuner_type", passthrough.get("train_type", unset))
    by_rank = bool(passthrough.get(VERL + "lora_rank") or passthrough.get(VERL + "lora_adapter_path"))
    return bool(passthrough.get("use_peft")) or tuner in ("lora", "qlora") or by_rank


def adapted_projections(passthrough: Mapping[str, Any], framework: str) -> int:
    """Returns the number of projections per layer that have an adapter."""
    targets = next((passthrough[key] for key in TARGETS if passthrough.get(key)), None)
    if targets is None:
        return ALL_LINEAR if facts_of(framework).adapts_all_linear else QUERY_AND_VALUE
    names = [targets] if isinstance(targets, str) else list(targets)
    return ALL_LINEAR if any("all-linear" in str(name) for name in names) else len(names)
