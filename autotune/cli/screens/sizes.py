"""Memory as people write it -> bytes."""

from __future__ import annotations

import re
from decimal import Decimal

from autotune.errors import UsageError

ACCEPTED = "give a size with its unit: 6GiB, 6g or 512MiB (binary: 1 GiB = 1024 MiB), or 6GB (decimal: 10^9 bytes)"
LARGEST = 2**50

_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([kmgt])?(i?b)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes, at least 1 and at most 1 PiB. ``6GiB`` and ``6g`` are binary, ``6GB`` is decimal.

    Raises:
        UsageError: one sentence with what is accepted; a bare number is refused.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no size: {ACCEPTED}")
    number, prefix, suffix = match[1], (match[2] or "").lower(), (match[3] or "").lower()
    if not prefix and not suffix:
        raise UsageError(f"{text!r} has no unit: {ACCEPTED}")
    if not prefix and suffix == "ib":
        raise UsageError(f"{text!r} is no size: {ACCEPTED}")
    base = 1000 if suffix == "b" else 1024
    size = int(Decimal(number) * base ** _POWERS[prefix])
    if not 1 <= size <= LARGEST:
        raise UsageError(f"{text!r} is not between one byte and 1 PiB: {ACCEPTED}")
    return size
