"""Finds a trial's memory headroom, and describes its longest phase in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import Phase, Pool, Trial

_POOL_WORDS = {Pool.HOST: "host memory", Pool.DEVICE: "device memory"}


@dataclass(frozen=True)
class Headroom:
    """Free bytes in one memory pool."""

    pool: Pool
    peak: int
    """Highest use in bytes."""
    limit: int
    """Limit in bytes."""

    @property
    def share(self) -> float:
        """Free share, 1 - peak / limit; negative if the peak exceeds the limit."""
        return 1.0 - self.peak / self.limit


def tightest(trials: Iterable[Trial], host_limit: int | None, device_limit: int | None) -> Headroom | None:
    """Returns the pool that came closest to its limit in any of ``trials``; ``None`` if no pool has a peak and a limit.

    Args:
        host_limit: bytes for the process tree; ``None`` if there is no limit.
        device_limit: bytes of one device; ``None`` if there is none.
    """
    limits = {Pool.HOST: host_limit, Pool.DEVICE: device_limit}
    found = [
        Headroom(pool, used, limit)
        for trial in trials
        for pool, limit in limits.items()
        if limit and (used := trial.peak(pool)) is not None
    ]
    return min(found, key=lambda room: room.share, default=None)


def limit_sentence(trial: Trial, room: Headroom | None = None) -> str:
    """Describes the longest phase, and ``room``: ``update takes 71 % of a cycle; host memory headroom 38 %``."""
    spent = trial.phase_shares
    if not spent:
        return "no speed cycle was measured"
    phase, share = next(iter(spent.items()))
    words = "time outside every phase" if phase == Phase.IDLE.value else phase
    sentence = f"{words} takes {100 * share:.0f} % of a cycle"
    return sentence if room is None else f"{sentence}; {_POOL_WORDS[room.pool]} headroom {100 * room.share:.0f} %"
