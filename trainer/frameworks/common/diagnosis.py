"""What a failure's text says went wrong, and what to try next, whichever framework wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.child.contract import FailureReason, Pool, Sign, read_signs


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


def read(text: str, signs: Sequence[Sign], suggestions: Mapping[str, str]) -> Diagnosis | None:
    """The cause ``text`` tells, or else the end of a process; ``None`` if nothing in it is known.

    Args:
        text: of a log or an exception.
        signs: known texts, special ones before general ones.
        suggestions: by the sign's name.
    """
    reading = read_signs(text, signs)
    if reading is None:
        return None
    sign = reading.sign
    return Diagnosis(sign.reason, sign.pool, sign.phase, reading.line[:400], suggestions.get(sign.name, ""))
