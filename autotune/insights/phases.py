"""Memory headroom of a trial, and one sentence on what limits the trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import Phase, Pool, Trial

_POOL_WORDS = {Pool.HOST: "host memory", Pool.DEVICE: "device memory"}


@dataclass(frozen=True)
class Headroom:
    """Bytes left in one memory pool."""

    pool: Pool
    peak: int
    """Bytes."""
    limit: int
    """Bytes."""

    @property
    def share(self) -> float:
        """1 - peak / limit; negative where the limit was passed."""
        return 1.0 - self.peak / self.limit


def tightest(trials: Iterable[Trial], host_limit: int | None, device_limit: int | None) -> Headroom | None:
    """The pool that came closest to its limit in any of ``trials``.

    Args:
        host_limit: bytes for the process tree; ``None`` if there is no limit.
        device_limit: bytes of one device; ``None`` if there is none.

    Returns:
        ``None`` if no pool has both a peak and a limit.
    """
    limits = {Pool.HOST: host_limit, Pool.DEVICE: device_limit}
    found = [
        Headroom(pool, used, limit)
        for trial in trials
        for pool, limit in limits.items()
        if limit and (used := trial.peak(pool)) is not None
    ]
    return min(found, key=lambda room: room.share, default=None)


def headroom(trials: Iterable[Trial], host_limit: int | None, device_limit: int | None) -> float | None:
    """1 - peak / limit of ``tightest``."""
    room = tightest(trials, host_limit, device_limit)
    return None if room is None else room.share


def limit_sentence(trial: Trial, host_limit: int | None = None, device_limit: int | None = None) -> str:
    """A sentence on what limits ``trial``: ``update takes 71 % of a cycle; host memory headroom 38 %``."""
    spent = trial.phase_shares
    if not spent:
        return "no speed cycle was measured"
    phase, share = next(iter(spent.items()))
    words = "time outside every phase" if phase == Phase.IDLE.value else phase
    sentence = f"{words} takes {100 * share:.0f} % of a cycle"
    room = tightest([trial], host_limit, device_limit)
    return sentence if room is None else f"{sentence}; {_POOL_WORDS[room.pool]} headroom {100 * room.share:.0f} %"
