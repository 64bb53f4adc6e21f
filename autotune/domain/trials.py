"""Trials, before and after they have a number, and the figures computed from their cycles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from autotune.domain.measures import peak_reader, peaks_by_phase, phase_seconds
from autotune.domain.outcomes import Outcome
from search_spaces.configuration import Configuration
from search_spaces.native import emulated
from trainer.child.contract import CycleKind, CycleRecord, Pool, Protocol

UNSETTLED = 0.3
"""Ratio minus one by which each warm-up cycle must exceed the slowest later cycle, in seconds per token.
``trainer.child.cycles.Settling`` applies the same limit to two neighbouring cycles."""
LEAST_CYCLES = 3
"""Timed cycles needed to recognize a warm-up; of two, either may be the outlier."""


def still_warming(costs: Sequence[float]) -> int:
    """Counts the first cycles that were still a warm-up; at most half of them.

    Takes a cycle of a steady process for a warm-up in 0.2 % of the trials of benchmarks/tables/search-cpu-*.jsonl.gz
    (``benchmarks.intervals --fit``). ``costs`` are seconds per token of the timed cycles, in order.
    """
    if len(costs) < LEAST_CYCLES:
        return 0
    for first in range(len(costs) // 2, 0, -1):
        slowest_later = max(costs[first:])
        if slowest_later > 0.0 and min(costs[:first]) > (1.0 + UNSETTLED) * slowest_later:
            return first
    return 0


class TrialKind(StrEnum):
    """Purpose of a trial."""

    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRM = "confirm"
    VERIFY = "verify"

    @property
    def is_searched(self) -> bool:
        """True for the baseline and proposed configurations; other kinds repeat one of these."""
        return self in (TrialKind.BASELINE, TrialKind.SEARCH)


class TrialState(StrEnum):
    """Optuna's trial states. WAITING and RUNNING may change, the others never do."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"

    @property
    def is_finished(self) -> bool:
        return self in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass(frozen=True)
class TrialDraft:
    """A trial before it has a number."""

    kind: TrialKind
    configuration: Configuration
    protocol: Protocol
    rows_per_update: int
    pair: int | None = None
    """Round of a CONFIRM trial; the trials of one round run next to each other."""
    source: str = ""
    """Proposer of the trial: ``baseline``, ``tpe/headline``, ``tpe/permitted``, ``confirm`` ..."""


@dataclass(frozen=True)
class Trial:
    """One execution of one configuration."""

    study_id: int
    number: int
    kind: TrialKind
    configuration: Configuration
    protocol: Protocol
    rows_per_update: int
    state: TrialState = TrialState.WAITING
    attempt: int = 0
    """Attempts started so far. A repeat after INFRA or a killed tuner keeps the trial's number."""
    pair: int | None = None
    source: str = ""
    outcome: Outcome | None = None
    """Outcome of the trial; ``None`` until it has finished."""
    cycles: tuple[CycleRecord, ...] = ()
    """Cycles of the last attempt, in order."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the start-up by ``StartupPart`` value."""
    worst_case_passed: bool = False
    watchdog_peak: int | None = None
    """Highest summed PSS of the process tree that the parent's watchdog measured, in bytes; see ``host_peak``."""
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    seconds: float | None = None
    """Wall seconds of all attempts, start-up included."""
    gpus: int = 0
    """GPUs held, those of a rollout server included; 0 on a CPU."""
    per_gpu: bool = False
    """True if the study's objective is tokens per GPU-hour."""
    node: str = ""
    """Machine of the last attempt; empty if the study has one machine."""
    node_log: float = 0.0
    """Logarithm of the node's speed relative to the mean node (``statistics.nodes``)."""
    node_variance: float = 0.0
    """Variance of ``node_log``."""

    def with_(self, **changes: Any) -> Trial:
        return replace(self, **changes)

    @property
    def emulated(self) -> bool:
        """True if the trial emulated FP8, so that its speed is not that of any hardware."""
        return emulated(self.configuration)

    @property
    def divisor(self) -> float:
        """Divisor of the trial's tokens/hour for ranking: the trial's GPUs, or 1, by the study's objective, times the
        relative speed of its node."""
        return (max(1, self.gpus) if self.per_gpu else 1) * math.exp(self.node_log)

    @property
    def tokens_per_hour_per_gpu(self) -> float | None:
        """Tokens/hour divided by the trial's GPUs; ``None`` without a speed or on a CPU."""
        return self.tokens_per_hour / self.gpus if self.tokens_per_hour and self.gpus else None

    @property
    def merit(self) -> float | None:
        """Figure that ranks trials: ``tokens_per_hour`` in the study's objective, corrected for its node's speed."""
        return None if self.tokens_per_hour is None else self.tokens_per_hour / self.divisor

    @property
    def at_most(self) -> float | None:
        """Upper bound in tokens/hour of a trial that was stopped early; ``None`` for any other trial."""
        ceiling = None if self.outcome is None else self.outcome.ceiling
        return ceiling.at_most if ceiling is not None and self.state is TrialState.PRUNED else None

    @property
    def inconclusive(self) -> bool:
        """True if the machine or a person ended the trial, so that it gives no verdict on its configuration."""
        return self.outcome is not None and self.outcome.inconclusive

    @property
    def on_gpu(self) -> bool:
        """True if the cycles recorded device memory, which only GPUs have."""
        peaks = (p for c in self.cycles for p in c.peaks.values())
        return any(p.device_allocated is not None or p.device_used is not None for p in peaks)

    @cached_property
    def host_peak(self) -> int | None:
        """Highest summed PSS of the process tree, in bytes, as measured by the watchdog or in the trial."""
        seen = self.peaks_by_phase(Pool.HOST).values()
        return max(seen if self.watchdog_peak is None else (*seen, self.watchdog_peak), default=None)

    @cached_property
    def device_peak(self) -> int | None:
        """Highest memory in use on one device, in bytes: the driver's figure if any cycle has one, else the
        allocator's."""
        return max(self.peaks_by_phase(Pool.DEVICE).values(), default=None)

    def peak(self, pool: Pool) -> int | None:
        """Returns ``host_peak`` or ``device_peak``, in bytes; ``None`` for the rollout cache, which is reserved as a
        whole."""
        if pool is Pool.HOST:
            return self.host_peak
        return self.device_peak if pool is Pool.DEVICE else None

    def peaks_by_phase(self, pool: Pool) -> dict[str, int]:
        """Returns the highest bytes of ``pool`` by phase, over all cycles."""
        return peaks_by_phase(self.cycles, peak_reader(self.cycles, pool))

    @property
    def fits(self) -> bool:
        """True if the trial passed the worst case and completed or was PRUNED."""
        return self.worst_case_passed and self.state in (TrialState.COMPLETE, TrialState.PRUNED)

    @property
    def feasible(self) -> bool:
        """True if the trial completed and passed the worst case."""
        return self.state is TrialState.COMPLETE and self.worst_case_passed

    def timed_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns the accepted RECORDED cycles of rank 0, disturbed ones included."""
        return tuple(c for c in self.cycles if c.cycle_kind is CycleKind.RECORDED and c.accepted and c.rank == 0)

    def speed_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns the cycles that the trial's speed is computed from: undisturbed ones after the warm-up.

        If every cycle was disturbed, returns the fastest one. A disturbance only slows a cycle down, so its speed is a
        lower bound (``only_disturbed``).
        """
        return self._figure_cycles[1]

    def warming_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns the first timed cycles that were still a warm-up (``still_warming``)."""
        return self._figure_cycles[0]

    @property
    def only_disturbed(self) -> bool:
        """True if every timed cycle was disturbed, so that the trial's speed is a lower bound."""
        return all(c.noisy for c in self.speed_cycles())

    @cached_property
    def _figure_cycles(self) -> tuple[tuple[CycleRecord, ...], tuple[CycleRecord, ...]]:
        timed = self.timed_cycles()
        clean = tuple(c for c in timed if not c.noisy)
        first = still_warming([_cost(c) for c in clean])
        return clean[:first], clean[first:] or tuple(sorted(timed, key=_cost)[:1])

    @cached_property
    def phase_shares(self) -> Mapping[str, float]:
        """Share of the speed cycles' summed time by phase, largest first; the shares sum to 1. Empty without a speed
        cycle."""
        seconds = phase_seconds(self.speed_cycles())
        total = sum(seconds.values())
        if total <= 0:
            return {}
        return {p: s / total for p, s in sorted(seconds.items(), key=lambda item: (-item[1], item[0]))}

    @cached_property
    def tokens_per_hour(self) -> float | None:
        """Distinct completion tokens per hour: the median over the speed cycles.

        ``None`` without a speed cycle, and for a PRUNED trial, of which only an upper bound is known. An unnoticed
        disturbance moves the mean of three cycles, but not their median.
        """
        rates = [3600.0 * c.completion_tokens / c.seconds for c in self.speed_cycles() if c.seconds > 0]
        return statistics.median(rates) if rates and self.state is not TrialState.PRUNED else None


def _cost(cycle: CycleRecord) -> float:
    """Returns the seconds per completion token of a cycle."""
    return cycle.seconds / max(1, cycle.completion_tokens)
