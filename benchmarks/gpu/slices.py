"""What a slice of a run still has room for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain import Configuration, FailureReason, Outcome, Protocol, Trial
from autotune.study.budget import predict

FIRST_S = 240.0
"""A trial's wall seconds while none has been measured."""
CAUTION = 1.25
"""A prediction is of typical trials; a slice that runs out in the middle of one has wasted it."""
WHOLE = 0.8
"""Share of a slice that counts as all of it: preparing takes the rest."""
ENDING_S = 20.0
"""Kept for ending a trial's processes and writing the table."""


@dataclass(frozen=True)
class Slice:
    """A bounded part of a run, in seconds of ``Clock.monotonic``."""

    began: float
    seconds: float

    @property
    def room(self) -> float:
        """For trials, in a slice that has just begun."""
        return self.seconds - ENDING_S

    def left(self, now: float) -> float:
        """For trials, from ``now`` on."""
        return self.room - (now - self.began)


def predicted(trials: Sequence[Trial], configuration: Configuration, protocol: Protocol) -> float:
    """Wall seconds of the next trial: as long as those of its own engine took, where there are any."""
    engine = configuration.get("rollout_engine")
    alike = [t for t in trials if t.configuration.get("rollout_engine") == engine]
    cost = predict(alike, configuration) or predict(trials, configuration)
    return FIRST_S if cost is None else CAUTION * cost.total(protocol)


def may_start(seconds: float, left: float, room: float) -> bool:
    """Whether something predicted to take ``seconds`` is started.

    In a slice that has hardly begun it always is, else what takes longer than a slice would never be.
    """
    return left >= min(seconds, WHOLE * room)


def whole(deadline: float, room: float) -> bool:
    """It was given as good as a whole slice: more it will not get."""
    return deadline >= WHOLE * room


def cut_short(outcome: Outcome, deadline: float, room: float) -> bool:
    """The slice ended the trial, not the trial itself: it says nothing, and is run again.

    One that had a whole slice and still did not end is a TIMEOUT of its own.
    """
    if outcome.reason is FailureReason.CANCELLED:
        return True
    return outcome.reason is FailureReason.TIMEOUT and not whole(deadline, room)
