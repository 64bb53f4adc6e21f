"""DeepSpeed's settings in a user's file: those that are knobs, and the others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from trainer.frameworks.common.deepspeed_places import PLACES, ZERO, said, whole
from trainer.frameworks.common.values import KnobKeyError, parsed

_FROM_KNOBS: frozenset[tuple[str, ...]] = frozenset(
    {
        *(("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",)),
        *(("bf16", "enabled"), ("fp16", "enabled")),
    }
)
"""Places that say again what the batch and precision knobs say."""


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
        found[knob] = parsed(knob, ".".join(("deepspeed", *PLACES[knob])), plain_word(value))
    return found


def zero_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's configuration without knobs and settings that follow from knobs; ``auto`` stays."""
    return without(settings, {PLACES[knob] for knob in said(settings)} | _FROM_KNOBS)


def beside_zero(ours: Mapping[str, Any], own: Mapping[str, Any], acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """DeepSpeed's configuration ``ours`` merged with the user's ``own``; knobs with an effect keep our value."""
    return merged(ours, without(own, {path for knob, path in PLACES.items() if knob in acts}))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``under`` with ``over`` in it, mapping by mapping."""
    found = dict(under)
    for key, value in over.items():
        there = found.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        found[key] = merged(there, value) if both else value  # type: ignore[arg-type]
    return found


def leaves(settings: Mapping[str, Any], here: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(Place, value) of everything in ``settings`` that is no mapping itself."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*here, name))
        else:
            yield (*here, name), value


def plain_word(value: Any) -> Any:
    """Words and whole floats (``5e8``) as DeepSpeed takes them."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return whole(value)


def without(
    settings: Mapping[str, Any], paths: Collection[tuple[str, ...]], here: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``settings`` without ``paths``, and without mappings that are empty then."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        place = (*here, name)
        if place in paths:
            continue
        inner = without(value, paths, place) if isinstance(value, Mapping) else value
        if inner or not isinstance(value, Mapping):
            found[name] = inner
    return found
