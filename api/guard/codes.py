"""One-time codes: printed where the server runs, and traded by a browser for its cookie."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: nothing in it looks like anything else in it."""
LENGTH = 10
"""Characters of 5 bits each."""
LIFE_S = 600.0
MOST_TRIES = 5
"""Wrong ones after which a code holds no longer, whoever tried."""

_LONGEST = 64
"""Characters of an answer that are looked at."""
_READ_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})

Clock = Callable[[], float]


def _nobody(_: str) -> None:
    """Takes a new code and does nothing."""


class Codes:
    """One-time login codes: one is valid at a time, once and for ``LIFE_S`` seconds. Safe for several threads."""

    def __init__(self, tell: Callable[[str], None] = _nobody, clock: Clock = time.monotonic) -> None:
        """``tell`` is given every new code as people read it."""
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._code: str | None = None
        self._until = 0.0
        self._tries = 0

    def invite(self) -> None:
        """Tells a new code, unless the last one told still holds."""
        with self._lock:
            if self._holding() is not None:
                return
            code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
            self._code, self._until, self._tries = code, self._clock() + LIFE_S, 0
        half = LENGTH // 2
        self._tell(f"{code[:half]}-{code[half:]}")

    def spend(self, given: str) -> bool:
        """Whether ``given`` is the code that holds, compared in constant time; then it holds no longer."""
        plain = given[:_LONGEST].upper().translate(_READ_AS)
        with self._lock:
            code = self._holding()
            same = hmac.compare_digest(plain.encode("utf-8", "replace"), (code or "-" * LENGTH).encode())
            if code is None:
                return False
            self._tries += 1
            if same or self._tries >= MOST_TRIES:
                self._code = None
            return same

    def _holding(self) -> str | None:
        return self._code if self._clock() < self._until else None
