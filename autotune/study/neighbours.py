"""Checks whether trials that run side by side slow each other, by running copies of the baseline at once. Pure.

Trials share memory bandwidth, PCIe lanes, power and disks, so the baseline that ran alone runs again in every place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import Study, Trial, TrialDraft, TrialKind, TrialState
from autotune.study.protocols import protocol_of

SOURCE = "beside"
"""Of a copy, with how many were to run at once: ``beside/8``."""
MOST = 0.03
"""Share by which neighbours may slow a cycle for a confirmation to run beside them."""


def source(at_once: int) -> str:
    """Returns the ``Trial.source`` of a copy."""
    return f"{SOURCE}/{at_once}"


def copies(trials: Sequence[Trial], at_once: int) -> list[Trial]:
    """Returns the copies of this check, in any state, without copies that the machine or a person ended."""
    return [t for t in trials if t.source == source(at_once) and not t.inconclusive]


def due(study: Study, trials: Sequence[Trial], at_once: int) -> TrialDraft | None:
    """Returns the next copy; ``None`` if all have been started, or the baseline did not hold."""
    held = any(t.kind is TrialKind.BASELINE and t.feasible for t in trials)
    if at_once == 1 or not held or len(copies(trials, at_once)) >= at_once:
        return None
    protocol = replace(protocol_of(study), natural=0, maximum=0, double=0)
    return study.draft(TrialKind.VERIFY, study.spec.baseline, protocol, source(at_once))


@dataclass(frozen=True)
class Check:
    """Result of the copies that ran at once."""

    at_once: int
    slower: float | None
    """Share by which a cycle took longer beside the others than alone; ``None`` where a copy failed."""

    @property
    def fine(self) -> bool:
        """Whether a confirmation may run beside other trials."""
        return self.slower is not None and self.slower <= MOST

    def sentence(self) -> str:
        """Describes the result and its consequence in one sentence."""
        follows = "confirmations run beside other trials" if self.fine else "confirmations run alone"
        if self.slower is None:
            return f"of {self.at_once} copies of the baseline side by side not all held: {follows}"
        more = f"{abs(self.slower):.1%} {'longer' if self.slower >= 0 else 'less'}"
        return f"a cycle of the baseline took {more} beside {self.at_once - 1} copies of itself than alone: {follows}"


def checked(trials: Sequence[Trial], at_once: int) -> Check | None:
    """Compares the copies with the baseline; ``None`` until every copy has ended."""
    found = copies(trials, at_once)
    if at_once == 1 or len(found) < at_once or not all(t.state.is_finished for t in found):
        return None
    alone = [t for t in trials if t.kind is TrialKind.BASELINE and t.feasible]
    if not alone or not all(t.feasible and t.speed_cycles() for t in found):
        return Check(at_once, None)
    there = [t for t in found if t.node == alone[-1].node] or found
    slower = statistics.fmean(map(_pace, there)) - statistics.fmean(map(_pace, alone))
    return Check(at_once, math.expm1(slower))


def _pace(trial: Trial) -> float:
    """Returns the mean logarithm of the seconds for a token."""
    return statistics.fmean(math.log(c.seconds / max(1, c.completion_tokens)) for c in trial.speed_cycles())


def fine(trials: Sequence[Trial], at_once: int) -> bool:
    """Tells whether the check was made and found no more than ``MOST``."""
    found = checked(trials, at_once)
    return found is not None and found.fine


def must_wait(trials: Sequence[Trial], kind: TrialKind, at_once: int, node: str = "") -> bool:
    """Tells whether a trial of ``kind`` has to wait, on ``node``, for running trials.

    The baseline runs alone, and so does a confirmation on its node unless neighbours do not disturb; one confirmation
    runs at a time.
    """
    running = [t for t in trials if t.state is TrialState.RUNNING]
    if not running:
        return False
    calm = fine(trials, at_once)
    kinds, here = {t.kind for t in running}, {t.kind for t in running if t.node == node}
    alone = TrialKind.CONFIRM in here or (kind is TrialKind.CONFIRM and here)
    if TrialKind.BASELINE in (kind, *kinds) or (alone and not calm):
        return True
    if kind is TrialKind.SEARCH and any(t.source == source(at_once) for t in running):
        return True
    return kind is TrialKind.CONFIRM and TrialKind.CONFIRM in kinds
