"""TRL's ``GRPOTrainer``, run as it is and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...trial import Trial
from .importing import bring_in_ahead, key, rehearse
from .run import run_trial

__all__ = ["Trial", "bring_in_ahead", "key", "put_back", "rehearse", "run_trial"]


def put_back(kept: Dict[str, Any]) -> str:
    """Between two trials of a warm worker; returns what could not be got rid of (``kept.put_back``)."""
    from .kept import put_back as put

    return put(kept)
