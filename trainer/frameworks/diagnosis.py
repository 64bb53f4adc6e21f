"""What a failure's text says went wrong, whichever framework wrote it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.child.contract import FailureReason, Phase, Pool


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


@dataclass(frozen=True)
class Sign:
    """A known text and what it means. ``wrapper`` texts only announce that the cause stands above them."""

    pattern: str
    reason: FailureReason
    suggestion: str
    pool: Pool | None = None
    phase: Phase | str | None = None
    wrapper: bool = False


def read(text: str, signs: Sequence[Sign]) -> Diagnosis | None:
    """The last recognised cause in ``text``; a wrapper counts only where no cause stands in it.

    Within a line the first matching sign of ``signs`` wins, so special signs go before general ones.
    """
    fallback: Diagnosis | None = None
    for line in reversed(text.splitlines()):
        sign = next((sign for sign in signs if re.search(sign.pattern, line)), None)
        if sign is None:
            continue
        phase = sign.phase.value if isinstance(sign.phase, Phase) else sign.phase
        found = Diagnosis(sign.reason, sign.pool, phase, line.strip()[:400], sign.suggestion)
        if not sign.wrapper:
            return found
        fallback = fallback or found
    return fallback
