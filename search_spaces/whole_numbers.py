"""Reads whole numbers that people wrote."""

from __future__ import annotations

LONGEST = 20
"""Digits; no setting has more, and Python reads no number of thousands of them."""


def whole_number(text: str) -> int | None:
    """The number that decimal digits say; ``None`` for any other text, and for more digits than any setting has."""
    digits = text.lstrip("0") or text[-1:]
    return int(digits) if text.isdecimal() and len(digits) <= LONGEST else None
