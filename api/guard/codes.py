"""One-time codes: printed where the server runs; a browser exchanges one for its cookie."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32, without characters that look alike."""
LENGTH = 10
"""Number of characters, each of 5 bits."""
LIFE_S = 600.0
MOST_TRIES = 5
"""Wrong tries, by any reader, after which a code is no longer valid."""

_LONGEST = 64
"""Most characters of a given code that are read."""
_READ_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})

Clock = Callable[[], float]


class Codes:
    """One-time login codes: one is valid at a time, once and for ``LIFE_S`` seconds. Safe for several threads."""

    def __init__(self, tell: Callable[[str], None] = lambda _: None, clock: Clock = time.monotonic) -> None:
        """Receives ``tell``, called with every new code in readable form."""
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._code: str | None = None
        self._until = 0.0
        self._tries = 0

    def invite(self) -> None:
        """Makes and announces a new code, unless the last one is still valid."""
        with self._lock:
            if self._holding() is not None:
                return
            code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
            self._code, self._until, self._tries = code, self._clock() + LIFE_S, 0
        half = LENGTH // 2
        self._tell(f"{code[:half]}-{code[half:]}")

    def spend(self, typed: str) -> bool:
        """Tells whether ``typed`` is the valid code, compared in constant time, and if so makes the code invalid."""
        plain = typed[:_LONGEST].upper().translate(_READ_AS)
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
