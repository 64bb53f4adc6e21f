"""DeepSpeed's and FSDP's settings in a user's file as knobs, and what of them is none. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from trainer.frameworks.deepspeed_places import PLACES, ZERO, said, whole
from trainer.frameworks.trl.key_tables import NESTED
from trainer.frameworks.values import KnobKeyError, parsed

_FROM_KNOBS: frozenset[tuple[str, ...]] = frozenset(
    {
        *(("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",)),
        *(("bf16", "enabled"), ("fp16", "enabled")),
    }
)
"""Places that say again what the batch and precision knobs say."""
_FSDP_WORDS: Mapping[str, Mapping[str, KnobValue]] = {
    "full_shard": {"fsdp_reshard_after_forward": True},
    "shard_grad_op": {"fsdp_reshard_after_forward": False},
    "offload": {"fsdp_offload": True},
    "auto_wrap": {},
    "true": {},
}
_INSIDE_FSDP = {"reshard_after_forward": "fsdp_reshard_after_forward", "cpu_offload": "fsdp_offload"}


def zero_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """The knobs of the key ``deepspeed``; what is ``auto`` is left out, the framework then chooses.

    Raises:
        KnobKeyError: a value no knob has.
    """
    if "deepspeed" not in keys:
        return {}
    settings = keys["deepspeed"]
    if settings is None:
        return {"zero_stage": 0}
    if not isinstance(settings, Mapping):
        raise KnobKeyError("deepspeed", f"expected a mapping, got {show(settings)}")
    zero = settings.get(ZERO, {})
    if not isinstance(zero, Mapping):
        raise KnobKeyError(f"deepspeed.{ZERO}", f"expected a mapping, got {show(zero)}")
    found: dict[str, KnobValue] = {"zero_stage": 0}
    for knob, value in said(settings).items():
        found[knob] = parsed(knob, ".".join(("deepspeed", *PLACES[knob])), _plain(value))
    return found


def zero_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of DeepSpeed's configuration is no knob and says nothing a knob says; ``auto`` stays."""
    return _without(settings, {PLACES[knob] for knob in said(settings)} | _FROM_KNOBS)


def beside(
    training: Mapping[str, Any], passthrough: Mapping[str, Any], acts: Mapping[str, KnobValue]
) -> dict[str, Any]:
    """``training`` with what is the user's own in the mappings that hold knobs; the knobs that act go before it."""
    found = dict(training)
    for key in ("deepspeed", "fsdp_config", *(key for key, _ in NESTED.values())):
        own, ours = passthrough.get(key), training.get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping) and ours:
            zero = key == "deepspeed"
            found[key] = beside_zero(ours, own, acts) if zero else merged(ours, _without(own, ()))
    return found


def beside_zero(ours: Mapping[str, Any], own: Mapping[str, Any], acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """DeepSpeed's configuration ``ours`` with the user's ``own`` in it; places of knobs that act stay ours."""
    return merged(ours, _without(own, {path for knob, path in PLACES.items() if knob in acts}))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``under`` with ``over`` in it, mapping by mapping."""
    found = dict(under)
    for key, value in over.items():
        there = found.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        found[key] = merged(there, value) if both else value  # type: ignore[arg-type]
    return found


def fsdp_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """The knobs of ``fsdp`` and ``fsdp_config``.

    Raises:
        KnobKeyError: FSDP's first version, or a way to shard that is no knob's value.
    """
    wanted, settings = keys.get("fsdp"), keys.get("fsdp_config")
    if "fsdp" not in keys and not settings:
        return {}
    if not wanted:
        return {"fsdp": "none"} if "fsdp" in keys else {}
    found: dict[str, KnobValue] = {"fsdp": "fsdp2"}
    for word in str(wanted).lower().split():
        if word not in _FSDP_WORDS:
            raise KnobKeyError("fsdp", f"expected true or the words {', '.join(_FSDP_WORDS)}, got {show(word)}")
        found.update(_FSDP_WORDS[word])
    for name, value in (settings or {}).items():
        key = name.removeprefix("fsdp_")
        if key == "version" and str(value) != "2":
            raise KnobKeyError("fsdp_config.version", f"a trial shards with FSDP2, got {show(value)}")
        if key in _INSIDE_FSDP:
            found[_INSIDE_FSDP[key]] = parsed(_INSIDE_FSDP[key], f"fsdp_config.{name}", _plain(value))
    return found


def fsdp_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``fsdp_config`` is no knob."""
    known = {"version", *_INSIDE_FSDP}
    return {name: value for name, value in settings.items() if name.removeprefix("fsdp_") not in known}


def _plain(value: Any) -> Any:
    """Words and whole floats (``5e8``) as DeepSpeed takes them."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return whole(value)


def _without(
    settings: Mapping[str, Any], paths: Collection[tuple[str, ...]], here: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``settings`` without ``paths``, and without mappings that are empty then."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        place = (*here, name)
        if place in paths:
            continue
        inner = _without(value, paths, place) if isinstance(value, Mapping) else value
        if inner or not isinstance(value, Mapping):
            found[name] = inner
    return found
