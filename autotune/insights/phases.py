"""Where a trial's time and memory go, and in one sentence what limits it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from autotune.domain import Peaks, Phase, Pool, Trial

_POOL_WORDS = {Pool.HOST: "host memory", Pool.DEVICE: "device memory"}


@dataclass(frozen=True)
class Headroom:
    """What was left of one pool."""

    pool: Pool
    peak: int
    """Bytes."""
    limit: int
    """Bytes."""

    @property
    def share(self) -> float:
        """1 - peak / limit; negative where the limit was passed."""
        return 1.0 - self.peak / self.limit


def shares(trial: Trial) -> Mapping[str, float]:
    """Share of the speed cycles' time by phase, largest first; they sum to 1. Empty without such a cycle.

    Cycles weigh by their length, so the shares are of all the time spent, not a mean of ratios.
    """
    seconds: dict[str, float] = {}
    for cycle in trial.speed_cycles():
        for phase, spent in cycle.phases.items():
            seconds[phase] = seconds.get(phase, 0.0) + max(0.0, spent)
    total = sum(seconds.values())
    if total <= 0:
        return {}
    return {p: s / total for p, s in sorted(seconds.items(), key=lambda item: (-item[1], item[0]))}


def host_peak(trial: Trial) -> int | None:
    """Highest summed PSS of the process tree, in bytes, by the watchdog or the child, whichever saw more."""
    seen = [p.host for p in _peaks(trial) if p.host is not None]
    if trial.host_peak is not None:
        seen.append(trial.host_peak)
    return max(seen, default=None)


def device_peak(trial: Trial) -> int | None:
    """Highest memory of one device, in bytes: by the driver where it told, else by the allocator."""
    used = [p.device_used for p in _peaks(trial) if p.device_used is not None]
    reserved = [p.device_reserved for p in _peaks(trial) if p.device_reserved is not None]
    allocated = [p.device_allocated for p in _peaks(trial) if p.device_allocated is not None]
    return max(used or reserved or allocated, default=None)


def peak(trial: Trial, pool: Pool) -> int | None:
    """Of the host or the device, in bytes; the rollout cache is reserved as a whole and has no peak."""
    if pool is Pool.HOST:
        return host_peak(trial)
    return device_peak(trial) if pool is Pool.DEVICE else None


def tightest(trials: Iterable[Trial], host_limit: int | None, device_limit: int | None) -> Headroom | None:
    """The pool that came closest to its limit in any of ``trials``.

    Args:
        trials: of one configuration, usually.
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
        if limit and (used := peak(trial, pool)) is not None
    ]
    return min(found, key=lambda room: room.share, default=None)


def headroom(trials: Iterable[Trial], host_limit: int | None, device_limit: int | None) -> float | None:
    """1 - peak / limit of ``tightest``."""
    room = tightest(trials, host_limit, device_limit)
    return None if room is None else room.share


def limit_sentence(trial: Trial, host_limit: int | None = None, device_limit: int | None = None) -> str:
    """What limits ``trial``: ``update takes 71 % of a cycle; host memory headroom 38 %``."""
    spent = shares(trial)
    if not spent:
        return "no speed cycle was measured"
    phase, share = next(iter(spent.items()))
    words = "time outside every phase" if phase == Phase.IDLE.value else phase
    sentence = f"{words} takes {100 * share:.0f} % of a cycle"
    room = tightest([trial], host_limit, device_limit)
    return sentence if room is None else f"{sentence}; {_POOL_WORDS[room.pool]} headroom {100 * room.share:.0f} %"


def _peaks(trial: Trial) -> Iterator[Peaks]:
    for cycle in trial.cycles:
        yield from cycle.peaks.values()
