"""Open-R1's ``grpo.py``, run as it is and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from ..hf_trainer.rehearsal import rehearse
from .importing import bring_in_ahead, key
from .run import run_trial

LEFT = "what grpo.py has built"
"""Of a trial, so that its process runs no other: ``grpo.py`` keeps what it has built."""
