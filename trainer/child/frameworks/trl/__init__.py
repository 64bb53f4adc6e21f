"""TRL's ``GRPOTrainer``, run as it is and measured from outside."""

from __future__ import annotations

from ...trial import Trial
from .run import run_trial

__all__ = ["Trial", "run_trial"]
