"""Converts keys of verl's Megatron engine to knobs and back. Pure.

verl 0.9.1 reads them in ``verl/workers/config/engine.py`` (``McoreEngineConfig``) and
``verl/workers/engine/megatron/transformer_impl.py``. Gradients are offloaded together with weights (``to``, line 740),
so ``grad_offload`` is not a knob.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, key_of
from search_spaces.knobs.megatron import ENGINE
from search_spaces.knobs.model import show
from search_spaces.legality.megatron_rules import TORCH_ONLY
from trainer.frameworks.common.values import KnobKeyError, parsed
from trainer.frameworks.verl.key_tables import (
    ACTOR,
    BUCKET,
    DTYPES,
    FRAMEWORK,
    FSDP,
    IMPL,
    KEYS,
    MODEL_ENGINE,
    NATIVE,
    OPTIMIZER,
    OPTIONS,
    PADDED,
    STRATEGY,
)

WORD = "megatron"
MEGATRON = ACTOR + "megatron."
DTYPE = MEGATRON + "dtype"
SHARE, ON_HOST = "optimizer_offload_fraction", "optimizer_cpu_offload"
"""Keys of ``override_optimizer_config``: the offloaded share, and the switch without which it has no effect."""
_SHARE_KNOB = "optimizer_offload_share"
OWN: Mapping[str, str] = {
    name: key_of(name, FRAMEWORK).removeprefix("+")
    for name, knob in KNOBS.items()
    if ENGINE in knob.needs and FRAMEWORK in knob.frameworks and name != _SHARE_KNOB
}
"""Knob that acts under Megatron alone -> key."""
ELSEWHERE: Mapping[str, str] = {
    "rollout_offload_model": MEGATRON + "param_offload",
    "rollout_offload_optimizer": MEGATRON + "optimizer_offload",
    "sequence_parallel_size": MEGATRON + "context_parallel_size",
}
"""Knob with another key under FSDP -> key."""
_NULL: Mapping[str, KnobValue] = {
    **dict.fromkeys(("recompute_granularity", "recompute_method"), "none"),
    **dict.fromkeys(("first_stage_layers", "last_stage_layers", "recompute_layers"), 0),
    "virtual_pipeline_size": 1,
}
"""Knob -> the value that verl writes as null."""
NOT_READ = frozenset({*(NATIVE[name] for name in TORCH_ONLY if name in NATIVE), IMPL, OPTIMIZER, PADDED, BUCKET})
"""Keys of knobs without an effect under Megatron, which pass through."""
MEGATRON_KEYS = frozenset({*OWN.values(), *ELSEWHERE.values(), DTYPE})
_RENAMED = {f"{FSDP}seed": f"{MEGATRON}seed", f"{ACTOR}grad_clip": f"{ACTOR}optim.clip_grad"}
"""FSDP's key that is no knob -> Megatron's key for the same."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


def chosen(keys: Mapping[str, Any]) -> bool:
    """Tells whether a run trains with Megatron, by verl's own files or by the actor's strategy."""
    return WORD in (keys.get(MODEL_ENGINE), keys.get(STRATEGY))


def refusal(keys: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns (key, reason) if ``keys`` mix both engines; ``None`` for one engine."""
    named, other = (FSDP, "FSDP's") if chosen(keys) else (MEGATRON, "Megatron's")
    found = next((key for key, value in keys.items() if key.startswith(named) and value is not None), None)
    if found is not None:
        return found, f"it is {other}, and the run trains with {'Megatron' if chosen(keys) else 'FSDP'} (model_engine)"
    if chosen(keys) and keys.get(STRATEGY, WORD) != WORD:
        return STRATEGY, f"expected megatron beside {MODEL_ENGINE} megatron, got {show(keys[STRATEGY])}"
    return None


def knobs_of(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs that Megatron's ``keys`` set, with the engine. Raises KnobKeyError with the expected value."""
    found: dict[str, KnobValue] = {ENGINE: WORD}
    for knob, key in {**OWN, **ELSEWHERE}.items():
        if key in keys and (keys[key] is not None or knob in _NULL):
            value = _NULL[knob] if keys[key] is None else keys[key]
            found[knob] = parsed(knob, key, value)
    if keys.get(DTYPE) is not None:
        found["precision"] = parsed("precision", DTYPE, _DTYPES.get(str(keys[DTYPE]), keys[DTYPE]))
    options = keys.get(OPTIONS)
    if isinstance(options, Mapping) and ON_HOST in options:
        share = options.get(SHARE, 0.0) if options[ON_HOST] is True else 0.0
        if not isinstance(options[ON_HOST], bool):
            raise KnobKeyError(f"{OPTIONS}.{ON_HOST}", f"expected true or false, got {show(options[ON_HOST])}")
        found[_SHARE_KNOB] = parsed(_SHARE_KNOB, f"{OPTIONS}.{SHARE}", share)
    return found


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs, for a run with Megatron."""
    found = {key: value for key, value in keys.items() if key not in (KEYS | MEGATRON_KEYS) - NOT_READ}
    options = keys.get(OPTIONS)
    if isinstance(options, Mapping):
        left = {name: value for name, value in options.items() if name not in (SHARE, ON_HOST)}
        return {**found, **({OPTIONS: left} if left else {})}
    return found


def keys_of(values: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns Megatron's keys for ``values``."""
    found: dict[str, Any] = {MODEL_ENGINE: WORD, STRATEGY: WORD, DTYPE: DTYPES[str(values["precision"])]}
    for knob, key in {**OWN, **ELSEWHERE}.items():
        if knob in values:
            found[key] = None if knob in _NULL and values[knob] == _NULL[knob] else values[knob]
    share = float(values.get(_SHARE_KNOB, 0.0))
    return {**found, f"{OPTIONS}.{ON_HOST}": share > 0, f"{OPTIONS}.{SHARE}": share}


def renamed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Renames FSDP's ``keys`` that are not knobs to Megatron's."""
    return {_RENAMED.get(key, key): value for key, value in keys.items()}


def added(key: str) -> bool:
    """Tells whether Hydra needs ``+`` for ``key``: verl's files have its mapping, but not the key."""
    return key.startswith((f"{MEGATRON}override_transformer_config.num_layers", f"{OPTIONS}."))
