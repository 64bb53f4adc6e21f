"""Builds vLLM's sampling parameters for a completion of a fixed length, and prompts of a fixed length."""

from __future__ import annotations

from typing import Any, List, Sequence


def exactly(sampling: Any, length: int, *, unended: bool = False) -> Any:
    """Returns ``SamplingParams`` for a completion of exactly ``length`` tokens.

    Only the limit ends the completion. No token is forbidden, and neither the end of sequence nor stop words and tokens
    end it (``stop_token_ids`` would even with ``ignore_eos``).

    Args:
        unended: forbids an earlier end of sequence, for a trainer that masks tokens after one.
    """
    own = sampling.clone()
    own.ignore_eos = True
    own.max_tokens = length
    own.stop, own.stop_token_ids = [], []
    if unended:
        own.min_tokens = length
    return own


def stretch(prompt: Sequence[int], length: int) -> List[int]:
    """Returns ``prompt`` repeated to ``length`` tokens, ending with its own end; a longer prompt stays unchanged."""
    ids = list(prompt)
    if not ids or len(ids) >= length:
        return ids
    return (ids * (length // len(ids) + 1))[-length:]
