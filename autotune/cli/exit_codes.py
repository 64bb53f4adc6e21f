"""Meanings of the program's exit codes (docs/decisions/0012-exit-codes.md); our exceptions carry their own."""

from __future__ import annotations

INTERNAL = 1
NOTHING_FEASIBLE = 3
"""No feasible configuration; also: none is likely to fit, a verification differs, a retry failed again."""
NO_RESULT = 4
"""The budget was spent before a result."""
ACT_SOON, ACT_NOW = 3, 4
"""What ``watch`` found."""
RUN_AGAIN = 75
"""A scheduler took the machine away; the same command goes on. The EX_TEMPFAIL of sysexits.h."""
SIGNAL = 128
"""Base to which the signal's number is added."""
INTERRUPTED = 130
