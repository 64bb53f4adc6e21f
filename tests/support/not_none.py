"""Asserts that there is a value."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """Returns the value; fails where it is None."""
    assert value is not None
    return value
