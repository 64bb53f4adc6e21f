"""Predicts from earlier trials whether the next search trial runs in the process of the previous one. Pure.

On a GPU a search trial may run in the process of the previous one, without a new start
(docs/decisions/0023-warm-workers.md). A schedule without this prediction ends a search with much of its time left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from autotune.domain import Configuration, Trial
from search_spaces.knobs import restart_between
from search_spaces.knobs.model import Restart
from trainer.child.contract import StartupPart

WARM = 0.5
"""Share of the longest start up to which a start counts as one in a reused process."""
RECENT = 50
"""Number of most recent trials that are examined, in addition to the first."""


def living_process(
    trials: Sequence[Trial], framework: str, device: str, here: Sequence[Trial] | None = None
) -> Configuration | None:
    """Returns the configuration of the process that the next search trial may use; ``None``: it needs a new one.

    Confirmations have processes of their own, and on a CPU (``device``) no process is kept. ``here`` are finished
    trials of the slot it will run in; ``None``: all run in one slot.
    """
    trials = trials if here is None else here
    last = trials[-1] if trials else None
    if device == "cpu" or last is None or not last.kind.is_searched or (last.state.is_finished and not last.fits):
        return None
    searched = [t for t in trials if t.kind.is_searched]
    return last.configuration if processes_go_on((*searched[:1], *searched[1:][-RECENT:]), framework) else None


def goes_on(trials: Sequence[Trial], configuration: Configuration, framework: str, device: str) -> bool:
    """Tells whether a search trial of ``configuration`` would run in the process of the newest trial."""
    last = living_process(trials, framework, device)
    if last is None or not trials[-1].fits:
        return False
    return restart_between(last, configuration, framework) is Restart.NONE


def processes_go_on(trials: Sequence[Trial], framework: str = "trl") -> bool:
    """Tells whether the newest process will run another trial. Assumes so until it has run as many as the previous
    process that was replaced although the next trial could have run in it."""
    longest = max((start_s(t) for t in trials), default=0.0)
    served, most = 1, math.inf
    for before, after in itertools.pairwise(trials):
        could = before.fits and after.number == before.number + 1 and bool(after.startup)
        could = could and restart_between(before.configuration, after.configuration, framework) is Restart.NONE
        if could and start_s(after) <= WARM * longest:
            served, most = served + 1, most if served < most else math.inf
        else:
            served, most = 1, served if could else most
    return served < most


def start_s(trial: Trial) -> float:
    """Returns the seconds of the recorded start-up, without the first batch."""
    return sum(seconds for part, seconds in trial.startup.items() if part != StartupPart.FIRST_BATCH.value)
