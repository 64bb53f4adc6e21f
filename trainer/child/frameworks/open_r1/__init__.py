"""Open-R1's ``grpo.py``, run as it is and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from ..hf_trainer.rehearsal import rehearse
from .importing import bring_in_ahead, key
from .run import run_trial


def fits(_: Dict[str, Any], __: TrialSpec) -> bool:
    """Whether a used worker may run another trial: no, ``grpo.py`` keeps what it has built."""
    return False


def put_back(_: Dict[str, Any]) -> str:
    """What of a trial could not be got rid of, so that the worker is replaced."""
    return "what grpo.py has built"
