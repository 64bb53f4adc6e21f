"""Where DeepSpeed's configuration has our knobs, whichever framework is given it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ZERO = "zero_optimization"
AUTO = "auto"
"""A value that leaves the choice to the framework."""
PLACES: Mapping[str, tuple[str, ...]] = {
    "zero_stage": (ZERO, "stage"),
    "offload_optimizer": (ZERO, "offload_optimizer", "device"),
    "offload_parameters": (ZERO, "offload_param", "device"),
    "zero_overlap": (ZERO, "overlap_comm"),
    "zero_contiguous_gradients": (ZERO, "contiguous_gradients"),
    "zero_reduce_bucket": (ZERO, "reduce_bucket_size"),
    "zero_allgather_bucket": (ZERO, "allgather_bucket_size"),
    "zero_prefetch_bucket": (ZERO, "stage3_prefetch_bucket_size"),
    "reduce_precision": ("communication_data_type",),
}
"""Knob -> place."""


def at(settings: Any, place: tuple[str, ...]) -> Any:
    """The value at a place; ``None`` if there is none."""
    for name in place:
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings


def said(settings: Any) -> dict[str, Any]:
    """Knob -> what ``settings`` say of it, as it stands there; neither null nor ``AUTO`` says anything."""
    found = {knob: at(settings, place) for knob, place in PLACES.items()}
    return {knob: value for knob, value in found.items() if value is not None and value != AUTO}


def whole(value: Any) -> Any:
    """A whole float (``5e8``) as the number it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
