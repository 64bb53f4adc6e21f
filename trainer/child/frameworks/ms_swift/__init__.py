"""ms-swift's ``GRPOTrainer``, run by its own entry point and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from ...user_environment import import_key as key
from .importing import bring_in_ahead
from .run import run_trial
