"""Runs ms-swift's ``GRPOTrainer`` by its own entry point, and measures it from outside."""

from __future__ import annotations

from ...user_environment import import_key as key
from .run import bring_in_ahead, run_trial
