"""One failure: its text, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.child.contract import FailureReason, Pool

OOM, ILLEGAL, INFRA, NAN = FailureReason.OOM, FailureReason.ILLEGAL, FailureReason.INFRA, FailureReason.NAN
CRASH, HANG, REWARD = FailureReason.CRASH, FailureReason.HANG, FailureReason.REWARD_ERROR
DEVICE, HOST, CACHE = Pool.DEVICE, Pool.HOST, Pool.ROLLOUT_CACHE


@dataclass(frozen=True)
class Row:
    """A failure's text, and what must become of it."""

    text: str
    reason: FailureReason
    pool: Pool | None = None
    phase: str | None = None
    """Where the text itself tells it."""
    try_: str = ""
    """Words the suggestion must have: the knob, and the direction."""

    def __str__(self) -> str:
        return self.text.splitlines()[-1][:60]
