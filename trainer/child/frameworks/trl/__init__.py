"""Runs TRL's ``GRPOTrainer`` unchanged, and measures it from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from ...trial import TrialContext
from .importing import bring_in_ahead, key
from .run import run_trial


def fits(state: Dict[str, Any], spec: TrialSpec) -> bool:
    """Tells whether a used worker may run ``spec`` (``kept.fits``)."""
    from . import kept as between

    return between.fits(state, spec)


def put_back(state: Dict[str, Any]) -> str:
    """Resets a worker between two trials; returns the parts that could not be reset (``kept.put_back``)."""
    from . import kept as between

    return between.put_back(state)
