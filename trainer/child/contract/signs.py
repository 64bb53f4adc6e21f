"""Recognises a failure by its text, in the child's exceptions and in the parent's logs."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Callable, Optional, Pattern, Sequence, Tuple

from .words import FailureReason, Pool

ANYTHING = "…"
"""Placeholder in a sign's text for the parts that differ between failures."""


class Nearness(IntEnum):
    """Closeness of a log text to the cause of a failure; of two texts the closer one counts."""

    ECHO = 0
    """Reports the end of another process, whose own text may be elsewhere."""
    DEATH = 1
    """Shows how a process ended, not why."""
    CAUSE = 2


@dataclass(frozen=True)
class Sign:
    """Known texts of one failure, and their meaning."""

    name: str
    texts: Tuple[str, ...]
    """Texts as written, with ``ANYTHING`` for the parts that differ."""
    reason: FailureReason
    pool: Optional[Pool] = None
    phase: Optional[str] = None
    """``Phase`` or ``StartupPart`` value, if the text shows it."""
    nearness: Nearness = Nearness.CAUSE
    unless: Tuple[str, ...] = ()
    """A line with one of these texts has another meaning."""

    def found_in(self, line: str) -> bool:
        """Tells whether ``line`` contains one of the texts."""
        return _any_in(self.texts, line) and not _any_in(self.unless, line)


def signs_of(
    reason: FailureReason, pool: Optional[Pool] = None, nearness: Nearness = Nearness.CAUSE
) -> Callable[..., Sign]:
    """Returns a function that makes signs of one outcome from a name, texts, and optional ``phase`` and ``unless``."""

    def sign(name: str, *texts: str, phase: Optional[str] = None, unless: Tuple[str, ...] = ()) -> Sign:
        return Sign(name, texts, reason, pool, phase, nearness, unless)

    return sign


illegal = signs_of(FailureReason.ILLEGAL)
"""Signs of a setting that the framework refuses."""
infra = signs_of(FailureReason.INFRA)
"""Signs of faults of the machine."""
echo = signs_of(FailureReason.CRASH, nearness=Nearness.ECHO)
"""Signs that only report another failure."""


@dataclass(frozen=True)
class SignMatch:
    """A sign with the line that contains it."""

    sign: Sign
    line: str


def _any_in(texts: Tuple[str, ...], line: str) -> bool:
    # A word that is not there is found out faster than by a pattern, and hundreds of texts are looked for in a line.
    return any(first in line and pattern.search(line) for first, pattern in _patterns(texts))


@functools.lru_cache(maxsize=None)
def _patterns(texts: Tuple[str, ...]) -> Tuple[Tuple[str, Pattern[str]], ...]:
    """Returns the fixed beginning and the whole pattern of each text."""
    return tuple((text.partition(ANYTHING)[0], _pattern(text)) for text in texts)


def _pattern(text: str) -> Pattern[str]:
    escaped = ".*".join(re.escape(part) for part in text.split(ANYTHING))
    # A word of its own: MemoryError is not OutOfMemoryError.
    return re.compile(r"(?<!\w)" + escaped if text[0].isalnum() else escaped)


def read_signs(text: str, signs: Sequence[Sign]) -> Optional[SignMatch]:
    """Returns the cause of a failure in ``text``: the last line of those closest to the cause.

    Within a line the first matching sign of ``signs`` counts, so specific signs come first.
    """
    found: Optional[SignMatch] = None
    for line in reversed(text.splitlines()):
        sign = next((sign for sign in signs if sign.found_in(line)), None)
        if sign is None or (found is not None and sign.nearness <= found.sign.nearness):
            continue
        found = SignMatch(sign, line.strip())
        if sign.nearness is Nearness.CAUSE:
            break
    return found
