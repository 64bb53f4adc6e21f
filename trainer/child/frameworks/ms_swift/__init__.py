"""ms-swift's ``GRPOTrainer``, run by its own entry point and measured from outside."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from ..hf_trainer.rehearsal import rehearse
from .importing import bring_in_ahead, key
from .run import run_trial


def fits(_: Dict[str, Any], __: TrialSpec) -> bool:
    """Whether a used worker may run another trial: never, since ms-swift keeps global state."""
    return False


def put_back(_: Dict[str, Any]) -> str:
    """Reason to replace the worker after a trial."""
    return "what ms-swift has built"
