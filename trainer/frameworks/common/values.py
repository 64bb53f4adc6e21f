"""A value of a framework's key as a knob's."""

from __future__ import annotations

import math
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import show


class KnobKeyError(ValueError):
    """A key that cannot become a knob's value, and why; neither begins with a capital nor ends with a stop."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key, self.text = key, text


def count_of(key: str, value: Any, most: float = math.inf) -> int:
    """``value`` as a whole number from 1 to ``most``.

    Raises:
        KnobKeyError: naming ``key``; it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise KnobKeyError(key, f"expected a whole number of at least 1, got {show(value)}")
    return value


def parsed(knob: str, key: str, value: Any) -> KnobValue:
    """``value`` as ``knob`` holds it.

    Raises:
        KnobKeyError: naming ``key`` and what was expected.
    """
    try:
        return KNOBS[knob].parse(value)
    except SpaceError as error:
        raise KnobKeyError(key, str(error)) from None
