"""vLLM's sampling parameters for a completion of a given length, and prompts of one."""

from __future__ import annotations

from typing import Any, List, Sequence


def exactly(sampling: Any, length: int, *, unended: bool = False) -> Any:
    """``SamplingParams`` for a completion of ``length`` tokens, whatever the model would do.

    Nothing but the limit ends it, and so no token has to be forbidden: not the end of a sequence, and none of the words
    and tokens that stop a completion besides (``stop_token_ids`` stop one even where the end is ignored).

    Args:
        sampling: those of natural lengths; not changed.
        length: tokens.
        unended: no end of sequence stands within it either, for a trainer that masks what stands behind one.
    """
    own = sampling.clone()
    own.ignore_eos = True
    own.max_tokens = length
    own.stop, own.stop_token_ids = [], []
    if unended:
        own.min_tokens = length
    return own


def stretch(prompt: Sequence[int], length: int) -> List[int]:
    """``prompt`` repeated to ``length`` tokens, its own end kept; as it is if it is longer."""
    ids = list(prompt)
    if not ids or len(ids) >= length:
        return ids
    return (ids * (length // len(ids) + 1))[-length:]
