"""Open-R1's ``grpo.py``, run unchanged and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from .importing import bring_in_ahead, key
from .run import run_trial
