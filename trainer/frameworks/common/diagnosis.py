"""What a failure's text says went wrong, and what to try next, whichever framework wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.child.contract import SIGNS, FailureReason, Nearness, Pool, Sign, read_log
from trainer.frameworks.common.suggestions import SUGGESTIONS


@dataclass(frozen=True)
class Diagnosis:
    """A failure recognised by its text."""

    reason: FailureReason
    pool: Pool | None = None
    phase: str | None = None
    """``Phase`` or ``StartupPart`` value; ``None`` where the text does not tell."""
    message: str = ""
    """The line that was recognised."""
    suggestion: str = ""
    """Empty where it depends on the phase."""
    nearness: Nearness = Nearness.CAUSE
    """Whether it says why, or only that something ended."""


def diagnose(
    text: str, signs: Sequence[Sign] = SIGNS, suggestions: Mapping[str, str] = SUGGESTIONS
) -> Diagnosis | None:
    """What ended the processes that wrote ``text``; ``None`` if that is not known (``read_log``).

    Args:
        text: of a log or an exception.
        signs: known texts, special ones before general ones.
    """
    reading = read_log(text, signs)
    if reading is None:
        return None
    sign = reading.sign
    advice = suggestions.get(sign.name, "")
    return Diagnosis(sign.reason, sign.pool, sign.phase, reading.line[:400], advice, sign.nearness)
