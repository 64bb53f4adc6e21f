"""Reads whole numbers that people wrote."""

from __future__ import annotations

LONGEST = 20
"""Most digits of a setting; Python refuses to convert thousands of digits."""


def whole_number(text: str) -> int | None:
    """Returns the number of a decimal text; ``None`` for any other text or too many digits."""
    digits = text.lstrip("0") or text[-1:]
    return int(digits) if text.isdecimal() and len(digits) <= LONGEST else None
