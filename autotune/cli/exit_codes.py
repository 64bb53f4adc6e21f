"""Exit codes of the program (docs/decisions/0012-exit-codes.md); exceptions of ``autotune.errors`` have their own."""

from __future__ import annotations

INTERNAL = 1
NOTHING_FEASIBLE = 3
"""No feasible configuration; also: none is likely to fit, a verification differs, a retry failed again."""
NO_RESULT = 4
"""The budget was spent before a result."""
ACT_SOON, ACT_NOW = 3, 4
"""Urgency of the findings of ``watch``."""
RUN_AGAIN = 75
"""Ended at a scheduler's notice; the same command continues. EX_TEMPFAIL of sysexits.h."""
SIGNAL = 128
"""Added to a signal's number: exit code of a command that the signal ended."""
INTERRUPTED = 130
