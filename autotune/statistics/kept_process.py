"""Chooses the process that the next search trial can go on with, by what earlier trials have shown; pure.

On a GPU a search trial may run in the process of the one before it, which spares it the start
(docs/decisions/0023-warm-workers.md). A schedule that does not count on that ends a search with most of its time left.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, Trial
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_between
from trainer.child.contract import StartupPart

FIRST_BATCH = StartupPart.FIRST_BATCH.value
"""Part of every trial's start, in a used process too."""
WARM = 0.5
"""A start that took no more than this share of the longest was one in a process that was there already."""
RECENT = 50
"""Trials that are looked at, the first beside."""


def goes_on(trials: Sequence[Trial], configuration: Configuration, framework: str, device: str) -> bool:
    """Whether a search trial of ``configuration`` would run in the process of the newest trial.

    Args:
        trials: all of the study, by number.
        framework: whose words the configurations are in.
        device: ``Resources.device``; on a CPU no process is kept.
    """
    newest = trials[-1] if trials else None
    if newest is None or device != "cuda" or not newest.fits:
        return False
    if not newest.kind.is_searched:  # confirmations have processes of their own
        return False
    if restart_between(newest.configuration, configuration, framework) is not Restart.NONE:
        return False
    searched = [t for t in trials if t.kind.is_searched]
    return processes_go_on((*searched[:1], *searched[1:][-RECENT:]), framework)


def processes_go_on(trials: Sequence[Trial], framework: str = "trl") -> bool:
    """Whether a process serves several trials: presumed until a trial that could have had one has started anew."""
    longest = max((start_s(t) for t in trials), default=0.0)
    for before, after in zip(reversed(trials[:-1]), reversed(trials[1:]), strict=True):
        could = before.fits and after.number == before.number + 1 and bool(after.startup)
        if could and restart_between(before.configuration, after.configuration, framework) is Restart.NONE:
            return start_s(after) <= WARM * longest
    return True


def start_s(trial: Trial) -> float:
    """Seconds of the recorded start, without the first batch."""
    return sum(seconds for part, seconds in trial.startup.items() if part != FIRST_BATCH)
