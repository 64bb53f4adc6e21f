"""What went wrong in a TRL trial, by its text."""

from __future__ import annotations

from trainer.child.contract import SIGNS
from trainer.frameworks.common.diagnosis import Diagnosis, read
from trainer.frameworks.common.suggestions import SUGGESTIONS


def diagnose(text: str) -> Diagnosis | None:
    """Cause of a failure in a log text; ``None`` if nothing is recognised."""
    return read(text, SIGNS, SUGGESTIONS)
