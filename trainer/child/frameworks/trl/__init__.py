"""TRL's ``GRPOTrainer``, run as it is and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...trial import Trial
from .run import run_trial

__all__ = ["Trial", "put_back", "run_trial"]


def put_back(kept: Dict[str, Any]) -> str:
    """Between two trials of a warm worker; returns what could not be got rid of (``kept.put_back``)."""
    from .kept import put_back as put

    return put(kept)
