"""Replaces functions of a framework, whose source stays unchanged, by functions that call the original."""

from __future__ import annotations

import functools
from typing import Any, Callable


def around(replacement: Callable[..., Any], own: Any) -> Any:
    """Wraps ``own`` in ``replacement``, which receives ``own`` in front of its arguments."""

    @functools.wraps(own)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(own, *args, **kwargs)

    return replaced


def replace(place: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replaces ``place.name`` by ``replacement``, which receives the original in front of its arguments."""
    setattr(place, name, around(replacement, getattr(place, name)))
