"""TRL's ``GRPOTrainer``, run as it is and measured from outside."""

from __future__ import annotations

from ...trial import Trial
from .importing import bring_in_ahead, key, rehearse
from .run import run_trial

__all__ = ["Trial", "bring_in_ahead", "key", "rehearse", "run_trial"]
