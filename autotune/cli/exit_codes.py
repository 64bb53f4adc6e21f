"""Meanings of the program's exit codes (docs/decisions/0012-exit-codes.md); our errors carry their own."""

from __future__ import annotations

INTERNAL = 1
NOTHING_FEASIBLE = 3
"""Also: nothing is likely to fit, a verification differs, a retry failed again."""
NO_RESULT = 4
"""The budget was spent before a result."""
ACT_SOON, ACT_NOW = 3, 4
"""What ``watch`` found."""
RUN_AGAIN = 75
"""A scheduler took the machine away; the same command goes on. The EX_TEMPFAIL of sysexits.h."""
SIGNAL = 128
"""With the signal's number on top."""
INTERRUPTED = 130
