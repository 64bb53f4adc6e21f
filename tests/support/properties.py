"""How many examples a property is tried on."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FULL = "full"


def examples(often: int, full: int, **more: Any) -> settings:
    """``often`` in the everyday lanes, ``full`` in `make test-full` (hypothesis' profile of that name)."""
    return settings(max_examples=full if is_full() else often, deadline=None, **more)


def is_full() -> bool:
    """Whether `make test-full` runs."""
    return settings.get_current_profile_name() == FULL
