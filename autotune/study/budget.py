"""Time spent by a study, predicted cost of trials, and the limit that ends the study."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.domain import Budget, Configuration, CycleKind, FailureReason, Protocol, Trial, TrialState
from autotune.ports import Clock, Store
from autotune.statistics import retries
from autotune.wording.numbers import counted
from trainer.child.contract import StartupPart

GRACE_S = 10.0
"""Seconds by which a study may overrun its wall-clock budget: for the end of a trial and the recommendation."""

PERSIST_EVERY_S = 1.0
"""Most seconds of spending that are lost if the tuner is killed."""

KEPT_PARTS = tuple(p.value for p in (StartupPart.SPAWN, StartupPart.IMPORT, StartupPart.LOAD, StartupPart.ENGINE))
"""Start-up parts that a trial in an existing process saves (of loading, most)."""

READ_AGAIN = 0.6
"""Presumed duration of an engine's second start with compiled code relative to its first; on an H100 34 s after 58."""


@dataclass(frozen=True)
class Spent:
    """Totals over all runs of the tuner on a study."""

    wall_s: float
    gpu_s: float


class Ledger:
    """Counts the time of one run of the tuner on the monotonic clock, and stores the total."""

    def __init__(self, store: Store, clock: Clock, study_id: int, gpus: int) -> None:
        self._store = store
        self._clock = clock
        self._gpus = gpus
        self._before = Spent(*store.spent(study_id))
        self._began = clock.monotonic()
        self._persisted = self._began
        self._session = store.open_session(study_id, clock.now())

    def spent(self) -> Spent:
        run = self._clock.monotonic() - self._began
        return Spent(self._before.wall_s + run, self._before.gpu_s + run * self._gpus)

    def leave_out(self, seconds: float) -> None:
        """Excludes the seconds in which the study was paused."""
        self._began += seconds

    def persist(self, *, force: bool = False) -> None:
        """Stores the totals, at most once a second unless forced."""
        moment = self._clock.monotonic()
        if force or moment - self._persisted >= PERSIST_EVERY_S:
            run = moment - self._began
            self._store.spend(self._session, run, run * self._gpus, self._clock.now())
            self._persisted = moment


def remaining_s(budget: Budget, spent: Spent, gpus: int) -> float | None:
    """Returns the wall seconds until the first time limit if a trial has ``gpus``; ``None`` without a limit."""
    left = []
    if budget.wall_s is not None:
        left.append(budget.wall_s - spent.wall_s)
    if budget.gpu_hours is not None and gpus > 0:
        left.append((budget.gpu_hours * 3600.0 - spent.gpu_s) / (gpus * budget.at_once))
    return min(left) if left else None


def extended(budget: Budget, more: Mapping[str, float]) -> Budget:
    """Returns the budget with ``more`` added to those limits that it has, by their names."""
    return replace(budget, **{n: getattr(budget, n) + v for n, v in more.items() if getattr(budget, n) is not None})


def limit_reached(budget: Budget, spent: Spent, trials: Sequence[Trial]) -> str | None:
    """Returns the sentence of the exhausted limit, or ``None``. ``max_trials`` counts the baseline and search trials
    with a verdict, not confirmations."""
    if budget.wall_s is not None and spent.wall_s >= budget.wall_s:
        return "the time budget is used up"
    if budget.gpu_hours is not None and spent.gpu_s >= budget.gpu_hours * 3600.0:
        return "the GPU-hour budget is used up"
    if budget.max_trials is not None and searched(trials) >= budget.max_trials:
        return f"the limit of {counted(budget.max_trials, 'trial')} is reached"
    return None


def searched(trials: Sequence[Trial]) -> int:
    """Counts the trials against ``max_trials``; a trial without a verdict on its configuration does not count."""
    return sum(t.kind.is_searched and not t.inconclusive for t in trials)


@dataclass(frozen=True)
class Cost:
    """Predicted wall seconds of one trial."""

    start_up: float
    cycle: float
    maximum_cycle: float
    looked: float | None = None
    """Recorded cycles of trials that may be ended early, upper quartile; ``None`` before there was one."""
    repeated: float = 0.0
    """Mean number of rejected cycles that a trial repeats; mostly due to chance, not to the configuration."""

    def total(self, protocol: Protocol) -> float:
        """Returns the seconds of all cycles of ``protocol``, with the mean number of repeats so far; with looks,
        recorded cycles are at the upper quartile (``looked``)."""
        often = float(protocol.recorded)
        if protocol.looks:
            often = protocol.looks[0] if self.looked is None else self.looked
        plain = protocol.natural + often + min(self.repeated, protocol.max_repeats)
        longer = protocol.double * min(2 * self.cycle, self.maximum_cycle)
        return self.start_up + plain * self.cycle + (protocol.warmup + protocol.maximum) * self.maximum_cycle + longer

    def first_measurement(self, protocol: Protocol) -> float:
        """Returns the seconds until the first timed cycle has ended."""
        return self.start_up + protocol.warmup * self.maximum_cycle + self.cycle


def predict(trials: Sequence[Trial], configuration: Configuration | None = None) -> Cost | None:
    """Predicts the cost of a trial from finished ones, at the upper quartile; ``None`` before any was measured.

    A tried configuration is predicted from its own trials, any other from all. A trial that its time limit or the
    budget ended counts with the cycles it completed.
    """
    measured = _measured(trials)
    own = [t for t in measured if t.configuration == configuration]
    pool = own or measured
    if not pool:
        return None
    cycle = _upper([_cycle_s(t) for t in pool])
    longest = [s for t in pool if (s := _mean_seconds(t, CycleKind.WARMUP, CycleKind.MAXIMUM)) is not None]
    beside = [_beside_s(t) for t in pool]
    once = [_once_s(t, measured) if own else 0.0 for t in pool]
    start_up = [max(0.0, b + _spared_s(t, measured) - o) for t, b, o in zip(pool, beside, once, strict=True)]
    looked = [float(len(t.speed_cycles())) for t in measured if t.protocol.looks and not _was_cut(t)]
    return Cost(
        start_up=_upper(start_up),
        cycle=cycle,
        maximum_cycle=_upper(longest) if longest else cycle,
        looked=_upper(looked) if looked else None,
        repeated=statistics.fmean(sum(not c.accepted and c.rank == 0 for c in t.cycles) for t in pool),
    )


def predict_search(trials: Sequence[Trial], configuration: Configuration, *, kept: bool) -> Cost | None:
    """Predicts the cost of a search trial of ``configuration``; ``None`` before any was measured.

    An untried configuration is assumed as fast as the median with its engine settings, because slower ones are stopped
    early. ``kept``: it runs in the process of the previous trial.
    """
    measured = _measured(trials)
    found = predict(trials, configuration)
    if found is None:
        return None
    similar = _same_kind(measured, configuration)
    own = [t for t in similar if t.configuration == configuration]
    pool = own or similar
    if not pool:
        return found
    cycle = statistics.median([_cycle_s(t) for t in pool])
    longest = [s for t in pool if (s := _mean_seconds(t, CycleKind.WARMUP, CycleKind.MAXIMUM)) is not None]
    start_up = _kept_start_s(similar, measured) if kept else _fresh_start_s(similar, measured)
    maximum = statistics.median(longest) if longest else cycle
    return replace(found, start_up=start_up, cycle=cycle, maximum_cycle=maximum)


def _kept_start_s(similar: Sequence[Trial], measured: Sequence[Trial]) -> float:
    """Returns the start-up seconds of a trial in a running process: measured ones, else those of a new start without
    kept parts."""
    used = [_beside_s(t) for t in similar if t.startup and StartupPart.SPAWN.value not in t.startup]
    if used:
        return _upper(used)
    parts = (sum(t.startup.get(part, 0.0) for part in KEPT_PARTS) for t in similar)
    return max(0.0, min(_beside_s(t) - _tried_s(t, measured) - part for t, part in zip(similar, parts, strict=True)))


def _fresh_start_s(similar: Sequence[Trial], measured: Sequence[Trial]) -> float:
    """Returns the start-up seconds of a trial in its own process: those of the newest one, with filled caches."""
    fresh = [t for t in similar if StartupPart.SPAWN.value in t.startup]
    if not fresh:
        return _upper([_beside_s(t) + _spared_s(t, similar) for t in similar])
    return _beside_s(fresh[-1]) - _tried_s(fresh[-1], measured)


def _measured(trials: Sequence[Trial]) -> list[Trial]:
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    shown = (t for t in trials if (t.state in ended and t.speed_cycles()) or (_was_cut(t) and _cycle_s(t)))
    return [t for t in shown if t.seconds is not None]


def _was_cut(trial: Trial) -> bool:
    late = trial.outcome is not None and trial.outcome.reason is FailureReason.TIMEOUT
    return late or retries.stopped_by_budget(trial)


def _cycle_s(trial: Trial) -> float:
    kinds = (CycleKind.RECORDED, CycleKind.NATURAL, CycleKind.WARMUP)
    return next((found for kind in kinds if (found := _mean_seconds(trial, kind))), 0.0)


def _beside_s(trial: Trial) -> float:
    """Returns the seconds of a trial outside its cycles; for a trial cut short, those of its start-up."""
    beside = max(0.0, (trial.seconds or 0.0) - sum(c.seconds for c in trial.cycles if c.rank == 0))
    return min(beside, sum(trial.startup.values())) if _was_cut(trial) and trial.startup else beside


def _spared_s(trial: Trial, measured: Sequence[Trial]) -> float:
    """Returns the start-up seconds that a trial saved in an existing process, compared with the longest start of its
    kind."""
    if StartupPart.SPAWN.value in trial.startup:
        return 0.0
    similar = _same_kind(measured, trial.configuration)
    longest = {part: max(t.startup.get(part, 0.0) for t in similar) for part in KEPT_PARTS}
    return sum(longest[part] - trial.startup.get(part, 0.0) for part in KEPT_PARTS)


def _once_s(trial: Trial, measured: Sequence[Trial]) -> float:
    """Returns the seconds that later starts of this kind save: one-time attempts, and the engine's compilation, later
    read from a cache. After only one such start, assumes that the next takes ``READ_AGAIN`` of it."""
    tried, engine, similar = (
        _tried_s(trial, measured),
        StartupPart.ENGINE.value,
        _same_kind(measured, trial.configuration),
    )
    starts = [t.startup.get(engine, 0.0) for t in similar if StartupPart.SPAWN.value in t.startup]
    if not starts or trial.configuration.get("enforce_eager") is not False:
        return tried
    # A trial in a used process started no engine: ``_spared_s`` has given it the longest start of its kind.
    own = trial.startup.get(engine, 0.0) if StartupPart.SPAWN.value in trial.startup else max(starts)
    return tried + own - (min(starts) if len(starts) > 1 else READ_AGAIN * starts[0])


def _tried_s(trial: Trial, measured: Sequence[Trial]) -> float:
    """Returns the unnamed start-up seconds of a trial beyond the least of its kind (of all kinds, if it is the only
    one): each kind tries once to share imports that cannot be shared."""
    whole = [t for t in measured if t.startup and not _was_cut(t)]
    starts = [t for t in _same_kind(whole, trial.configuration) if StartupPart.SPAWN.value in t.startup]
    unnamed = [_beside_s(t) - sum(t.startup.values()) for t in (trial, *(starts if len(starts) > 1 else whole))]
    return unnamed[0] - min(unnamed) if trial in starts else 0.0


def _same_kind(measured: Sequence[Trial], configuration: Configuration) -> list[Trial]:
    """Returns the trials with the same values of the settings that most affect the length of a start."""
    kind = _kind(configuration)
    return [t for t in measured if _kind(t.configuration) == kind]


def _kind(configuration: Configuration) -> tuple[object, ...]:
    get = configuration.get
    return get("rollout_engine"), get("enforce_eager"), get("torch_compile")


def _mean_seconds(trial: Trial, *kinds: CycleKind) -> float | None:
    seconds = [c.seconds for c in trial.cycles if c.cycle_kind in kinds and c.rank == 0]
    return statistics.fmean(seconds) if seconds else None


def _upper(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, (3 * len(ordered)) // 4)]
