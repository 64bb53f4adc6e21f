"""Reads FSDP's settings in a user's file as knobs, and merges the user's own settings with knobs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from trainer.frameworks.common.deepspeed import beside_zero, merged, plain_word, without
from trainer.frameworks.common.values import KnobKeyError, parsed
from trainer.frameworks.trl.key_tables import NESTED

_FSDP_WORDS: Mapping[str, Mapping[str, KnobValue]] = {
    "full_shard": {"fsdp_reshard_after_forward": True},
    "shard_grad_op": {"fsdp_reshard_after_forward": False},
    "offload": {"fsdp_offload": True},
    "auto_wrap": {},
    "true": {},
}
INSIDE_FSDP = {"reshard_after_forward": "fsdp_reshard_after_forward", "cpu_offload": "fsdp_offload"}
"""Key of ``fsdp_config`` -> knob."""


def beside(
    training: Mapping[str, Any], passthrough: Mapping[str, Any], acts: Mapping[str, KnobValue]
) -> dict[str, Any]:
    """Returns ``training`` merged with the user's own mappings; knobs with an effect override the user's values."""
    found = dict(training)
    for key in ("deepspeed", "fsdp_config", *(key for key, _ in NESTED.values())):
        own, ours = passthrough.get(key), training.get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping) and ours:
            zero = key == "deepspeed"
            found[key] = beside_zero(ours, own, acts) if zero else merged(ours, without(own, ()))
    return found


def fsdp_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of ``fsdp`` and ``fsdp_config``.

    Raises KnobKeyError for FSDP's first version, or a way to shard that no knob has.
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
        if key in INSIDE_FSDP:
            found[INSIDE_FSDP[key]] = parsed(INSIDE_FSDP[key], f"fsdp_config.{name}", plain_word(value))
    return found


def fsdp_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``fsdp_config`` without knobs."""
    known = {"version", *INSIDE_FSDP}
    return {name: value for name, value in settings.items() if name.removeprefix("fsdp_") not in known}
