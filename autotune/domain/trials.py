"""A trial, before and after it has a number, with the figures derived from its cycles."""

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
"""By how much more than the slowest later cycle each of the first has to take; the limit of ``trainer.child.settling``,
which sees two cycles at a time and only those that no other kind of cycle preceded."""
LEAST_CYCLES = 3
"""With two it is not known which of them is the odd one."""


def still_warming(costs: Sequence[float]) -> int:
    """Number of first cycles that were still a warm-up; at most half of them.

    A steady process loses a cycle so in 0.2 % of the trials of benchmarks/tables/search-cpu-*.jsonl.gz
    (``benchmarks.intervals --fit``); that one cycle is slow by chance is as likely for the last as for the first.

    Args:
        costs: seconds per token of each timed cycle, in order.
    """
    if len(costs) < LEAST_CYCLES:
        return 0
    for first in range(len(costs) // 2, 0, -1):
        slowest_later = max(costs[first:])
        if slowest_later > 0.0 and min(costs[:first]) > (1.0 + UNSETTLED) * slowest_later:
            return first
    return 0


class TrialKind(StrEnum):
    """Why a trial is run."""

    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRM = "confirm"
    VERIFY = "verify"

    @property
    def is_searched(self) -> bool:
        """Whether the trial belongs to the search: the baseline, or a proposed configuration. Other kinds repeat one of
        these."""
        return self in (TrialKind.BASELINE, TrialKind.SEARCH)


class TrialState(StrEnum):
    """Optuna's states. WAITING and RUNNING may change; the others never do."""

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
    """Interleaving round of a CONFIRM trial; members of one round ran next to each other."""
    source: str = ""
    """Who proposed it: ``baseline``, ``tpe/headline``, ``tpe/permitted``, ``confirm`` ..."""


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
    """Attempts started so far; a repeat after INFRA or a killed tuner keeps the number."""
    pair: int | None = None
    source: str = ""
    outcome: Outcome | None = None
    """Set when the trial is finished."""
    cycles: tuple[CycleRecord, ...] = ()
    """Of the last attempt, in order."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """Seconds by ``StartupPart`` value."""
    worst_case_passed: bool = False
    watchdog_peak: int | None = None
    """Highest summed PSS of the process tree that the parent's watchdog saw, in bytes; see ``host_peak``."""
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    seconds: float | None = None
    """Wall seconds of all attempts, start-up included."""
    gpus: int = 0
    """Held, a rollout server's included; 0 on a CPU."""
    per_gpu: bool = False
    """The study's objective is tokens per GPU-hour."""
    node: str = ""
    """Where its last attempt ran; empty where there is one machine."""
    node_log: float = 0.0
    """By how much its node is faster than the mean one, as the logarithm of a ratio (``statistics.nodes``)."""
    node_variance: float = 0.0
    """What is not known of that."""

    def with_(self, **changes: Any) -> Trial:
        return replace(self, **changes)

    @property
    def emulated(self) -> bool:
        """Whether the trial emulated FP8, so that its speed is that of no hardware."""
        return emulated(self.configuration)

    @property
    def divisor(self) -> float:
        """Divisor of the trial's tokens/hour for ranking: the GPUs held in the study's objective, or 1, times the speed
        of its node over others."""
        return (max(1, self.gpus) if self.per_gpu else 1) * math.exp(self.node_log)

    @property
    def tokens_per_hour_per_gpu(self) -> float | None:
        """Tokens/hour for each GPU held; ``None`` if there is no speed or on a CPU."""
        return self.tokens_per_hour / self.gpus if self.tokens_per_hour and self.gpus else None

    @property
    def merit(self) -> float | None:
        """Figure the trial is ranked by: ``tokens_per_hour`` in the study's objective, as on a mean node."""
        return None if self.tokens_per_hour is None else self.tokens_per_hour / self.divisor

    @property
    def at_most(self) -> float | None:
        """Upper bound in tokens/hour of a trial that was stopped early; ``None`` of any other."""
        ceiling = None if self.outcome is None else self.outcome.ceiling
        return ceiling.at_most if ceiling is not None and self.state is TrialState.PRUNED else None

    @property
    def inconclusive(self) -> bool:
        """Whether the machine or a person ended the trial, so that it says nothing of its configuration."""
        return self.outcome is not None and self.outcome.inconclusive

    @property
    def on_gpu(self) -> bool:
        """Whether the cycles recorded device memory, which only GPUs have."""
        peaks = (p for c in self.cycles for p in c.peaks.values())
        return any(p.device_allocated is not None or p.device_used is not None for p in peaks)

    @cached_property
    def host_peak(self) -> int | None:
        """Highest summed PSS of the process tree, in bytes, by the watchdog or the trial itself, whichever saw more."""
        seen = self.peaks_by_phase(Pool.HOST).values()
        return max(seen if self.watchdog_peak is None else (*seen, self.watchdog_peak), default=None)

    @cached_property
    def device_peak(self) -> int | None:
        """Highest memory of one device, in bytes: by the driver if it told in any cycle, else by the allocator."""
        return max(self.peaks_by_phase(Pool.DEVICE).values(), default=None)

    def peak(self, pool: Pool) -> int | None:
        """``host_peak`` or ``device_peak``; the rollout cache is reserved as a whole and has no peak."""
        if pool is Pool.HOST:
            return self.host_peak
        return self.device_peak if pool is Pool.DEVICE else None

    def peaks_by_phase(self, pool: Pool) -> dict[str, int]:
        """Highest bytes of ``pool`` by phase, over all cycles."""
        return peaks_by_phase(self.cycles, peak_reader(self.cycles, pool))

    @property
    def fits(self) -> bool:
        """Whether the trial ended well after the worst case; known of PRUNED trials too."""
        return self.worst_case_passed and self.state in (TrialState.COMPLETE, TrialState.PRUNED)

    @property
    def feasible(self) -> bool:
        """Finished, OK, and through the worst case."""
        return self.state is TrialState.COMPLETE and self.worst_case_passed

    def timed_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns the RECORDED, accepted cycles of rank 0 (the slowest rank's clock), disturbed ones among them."""
        return tuple(c for c in self.cycles if c.cycle_kind is CycleKind.RECORDED and c.accepted and c.rank == 0)

    def speed_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns the cycles speed is judged by: the undisturbed, warmed-up ones of ``timed_cycles``.

        Where all were disturbed, the fastest alone. A disturbance only slows a cycle down, so that one bounds the speed
        from below (``only_disturbed``).
        """
        return self._figure_cycles[1]

    def warming_cycles(self) -> tuple[CycleRecord, ...]:
        """Returns timed cycles at the start that were still a warm-up (``still_warming``)."""
        return self._figure_cycles[0]

    @property
    def only_disturbed(self) -> bool:
        """Whether no timed cycle was undisturbed, so that the trial's speed is known as a lower bound only."""
        return all(c.noisy for c in self.speed_cycles())

    @cached_property
    def _figure_cycles(self) -> tuple[tuple[CycleRecord, ...], tuple[CycleRecord, ...]]:
        timed = self.timed_cycles()
        clean = tuple(c for c in timed if not c.noisy)
        first = still_warming([_cost(c) for c in clean])
        return clean[:first], clean[first:] or tuple(sorted(timed, key=_cost)[:1])

    @cached_property
    def phase_shares(self) -> Mapping[str, float]:
        """Share of the speed cycles' time by phase, largest first; they sum to 1. Empty without such a cycle.

        Cycles weigh by their length, so the shares are of all the time spent, not a mean of ratios.
        """
        seconds = phase_seconds(self.speed_cycles())
        total = sum(seconds.values())
        if total <= 0:
            return {}
        return {p: s / total for p, s in sorted(seconds.items(), key=lambda item: (-item[1], item[0]))}

    @cached_property
    def tokens_per_hour(self) -> float | None:
        """Distinct completion tokens per hour: the median of the speed cycles; ``None`` before there are any.

        The median, because a disturbance that the guard does not see moves a mean of three cycles, and not a median.
        ``None`` also of a PRUNED trial: it was ended when it could not win, so of it only a bound is known.
        """
        rates = [3600.0 * c.completion_tokens / c.seconds for c in self.speed_cycles() if c.seconds > 0]
        return statistics.median(rates) if rates and self.state is not TrialState.PRUNED else None


def _cost(cycle: CycleRecord) -> float:
    """Seconds a completion token."""
    return cycle.seconds / max(1, cycle.completion_tokens)
