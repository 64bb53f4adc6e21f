"""A value of a framework's key as a knob's."""

from __future__ import annotations

import math
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import show


class KnobKeyError(ValueError):
    """A key that cannot become a knob's value, and the reason; the text has no capital and no full stop."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key, self.text = key, text


def count_of(key: str, value: Any, most: float = math.inf) -> int:
    """Returns ``value`` if it is a whole number from 1 to ``most``.

    Raises KnobKeyError with ``key`` for any other value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise KnobKeyError(key, f"expected a whole number of at least 1, got {show(value)}")
    return value


def parsed(knob: str, key: str, value: Any) -> KnobValue:
    """Converts ``value`` to the type of ``knob``.

    Raises KnobKeyError with ``key`` and the expected value.
    """
    try:
        return KNOBS[knob].parse(value)
    except SpaceError as error:
        raise KnobKeyError(key, str(error)) from None
