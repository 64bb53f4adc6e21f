"""Runs Open-R1's ``grpo.py`` unchanged, and measures it from outside."""

from __future__ import annotations

from .importing import bring_in_ahead, key
from .run import run_trial
