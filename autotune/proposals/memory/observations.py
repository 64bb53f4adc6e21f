"""What a study's trials say of memory: peaks that were measured, and bounds by those that ran out of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, FailureReason, Phase, Pool, Trial, TrialState
from autotune.proposals.memory.parts import MOMENTS, NOISE, NOISE_BYTES, PARTS, PHASE_NOISE, Moment
from autotune.proposals.memory.regression import Observations
from autotune.statistics import retries


@dataclass(frozen=True)
class Rows:
    """Features of one pool."""

    places: Mapping[Configuration, int]
    matrix: NDArray[np.float64]
    """Bytes by place, moment and part."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One figure."""

    place: int
    moments: tuple[Moment, ...]
    level: float
    censored: bool
    whole: bool
    """Of a trial as a whole, not of one of its phases."""


_UPDATE = (Moment.UPDATE, Moment.STEP)
_MOMENTS: Mapping[str, tuple[Moment, ...]] = {
    Phase.GENERATE.value: (Moment.GENERATE,),
    Phase.SYNC.value: (Moment.SYNC,),
    Phase.LOGPROB.value: (Moment.LOGPROB,),
    Phase.UPDATE.value: _UPDATE,
}
"""Where an out-of-memory failure was; one while starting counts for any moment, which asks for no less."""
_DEFAULT_ALLOCATOR = (None, "default")
DEVICE_USABLE = 0.97
"""Share of a GPU that must have been asked for when an allocation fails: the rest is what no request fits in."""


def observations(
    trials: Sequence[Trial], pool: Pool, limit: float | None, rows: Rows, *, alone: bool, has_device: bool
) -> Observations:
    """What ``trials`` say of one pool.

    Args:
        trials: of one study; the order does not matter.
        pool: device or host.
        limit: bytes it has; ``None`` = not known.
        rows: of every trial's configuration, and maybe others'.
        alone: one process trains, so what it saw of a phase is what the tree held then.
        has_device: the device has a memory of its own.
    """
    found: list[_Seen] = []
    disproved = retries.disproved(trials)
    # On a CPU there is one memory, whatever the failure was put down to.
    meant = (pool,) if has_device else (Pool.HOST, Pool.DEVICE, None)
    for trial in sorted(trials, key=lambda t: t.number):
        if trial.number in disproved or not trial.state.is_finished:
            continue
        place, peak = rows.places[trial.configuration], trial.peak(pool)
        if trial.fits and peak:
            found.append(_Seen(place, MOMENTS, float(peak), censored=False, whole=True))
            if alone:
                found += [_Seen(place, m, level, censored=False, whole=False) for m, level in _by_phase(trial, pool)]
        elif (bound := _bound(trial, pool, limit, peak, meant)) is not None:
            found.append(_Seen(place, bound[0], bound[1], censored=True, whole=True))
    return _stacked(found, rows)


def nothing() -> Observations:
    """No trial told anything."""
    return _stacked([], Rows({}, np.zeros((0, len(MOMENTS), len(PARTS)))))


def _stacked(found: Sequence[_Seen], rows: Rows) -> Observations:
    masks = {moments: [m in moments for m in MOMENTS] for moments in {f.moments for f in found}}
    noise = [noise_factor(f.level) * (1.0 if f.whole else PHASE_NOISE) for f in found]
    return Observations(
        matrix=rows.matrix[[f.place for f in found]] if found else np.zeros((0, len(MOMENTS), len(PARTS))),
        moments=np.array([masks[f.moments] for f in found], dtype=np.bool_).reshape(-1, len(MOMENTS)),
        level=np.array([f.level for f in found], dtype=np.float64),
        censored=np.array([f.censored for f in found], dtype=np.bool_),
        noise=np.array(noise, dtype=np.float64),
        whole=np.array([f.whole for f in found], dtype=np.bool_),
    )


def noise_factor(level: float) -> float:
    """How many times as noisy a peak of ``level`` bytes is than a great one."""
    return math.hypot(1.0, NOISE_BYTES / (NOISE * level))


def _bound(
    trial: Trial, pool: Pool, limit: float | None, peak: int | None, meant: Collection[Pool | None]
) -> tuple[tuple[Moment, ...], float] | None:
    """When and how high ``trial`` must have been at least, or ``None`` if it says nothing of ``pool``."""
    outcome = trial.outcome
    if outcome is None or trial.state is not TrialState.FAIL:
        return (MOMENTS, float(peak)) if peak else None
    if outcome.reason is FailureReason.OOM:
        if not outcome.fresh or outcome.pool not in meant:
            return None
        usable = 0.0 if limit is None else limit * (DEVICE_USABLE if pool is Pool.DEVICE else 1.0)
        level = max(usable, float(peak or 0.0))
        return (_MOMENTS.get(str(outcome.phase), MOMENTS), level) if level > 0 else None
    # Ended by something else after the longest micro-batch: it held at least what was seen.
    return (MOMENTS, float(peak)) if peak and trial.worst_case_passed else None


def _by_phase(trial: Trial, pool: Pool) -> list[tuple[tuple[Moment, ...], float]]:
    """Peaks of phases other than the highest; none where freed memory is kept, which shows in every phase."""
    if pool is not Pool.HOST or trial.configuration.get("host_allocator") not in _DEFAULT_ALLOCATOR:
        return []
    found = []
    for phase in (Phase.GENERATE.value, Phase.LOGPROB.value):
        seen = [p.host for c in trial.cycles if (p := c.peaks.get(phase)) is not None and p.host]
        if seen:
            found.append((_MOMENTS[phase], float(max(h for h in seen if h is not None))))
    return found
