"""Speculative decoding from a sequence's own n-grams: knobs to vLLM's ``speculative_config``, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.values import parsed

ARGUMENT = "speculative_config"
"""Name of vLLM's argument for speculative decoding."""
_METHOD, _TOKENS, _LONGEST, _SHORTEST = "method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"
KNOBS: Mapping[str, str] = {
    "speculative_decoding": _METHOD,
    "speculative_tokens": _TOKENS,
    "speculative_lookup": _LONGEST,
}
"""Knob -> key in ``speculative_config``."""


def speculative_config(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns vLLM's argument for the knobs; empty without speculative decoding."""
    guesses = acts.get("speculative_decoding", "none") != "none"
    return {key: acts[knob] for knob, key in KNOBS.items() if knob in acts} if guesses else {}


def speculative_knobs(value: Any, key: str) -> dict[str, KnobValue]:
    """Returns the knobs of vLLM's argument; empty for another method, which stays the user's own.

    Raises KnobKeyError for a number that no knob has. ``value`` is a mapping or its JSON.
    """
    settings = _mapping(value)
    last = settings.get(_LONGEST, settings.get(_SHORTEST))
    whole = set(settings) <= {_METHOD, _TOKENS, _LONGEST, _SHORTEST} and settings.get(_SHORTEST, last) == last
    if not whole or settings.get(_METHOD) != "ngram" or settings.get(_TOKENS) is None:
        return {}
    found: dict[str, KnobValue] = {"speculative_decoding": "ngram"}
    found["speculative_tokens"] = parsed("speculative_tokens", f"{key}.{_TOKENS}", settings[_TOKENS])
    if last is not None:
        found["speculative_lookup"] = parsed("speculative_lookup", f"{key}.{_LONGEST}", last)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}
