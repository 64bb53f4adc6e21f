"""The words of the tuner as frozen values.

Seconds, bytes and tokens throughout; timestamps are UTC seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from search_spaces.configuration import Configuration, Resources
from search_spaces.native import emulated
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    FailureReason,
    Peaks,
    Phase,
    Pool,
    Protocol,
    RewardSpec,
    StartupRecord,
    encode,
)

__all__ = [
    "Beforehand",
    "Budget",
    "Ceiling",
    "Configuration",
    "CycleKind",
    "CycleRecord",
    "EarlierStudy",
    "Event",
    "FailureReason",
    "Fingerprint",
    "Gain",
    "LengthFigure",
    "Outcome",
    "Peaks",
    "Phase",
    "Pool",
    "Protocol",
    "Recommendation",
    "RecommendationRow",
    "Resources",
    "RewardSpec",
    "StartupRecord",
    "Study",
    "StudySpec",
    "StudyStatus",
    "Trial",
    "TrialDraft",
    "TrialKind",
    "TrialState",
    "Workload",
]


class TrialKind(StrEnum):
    """Why a trial is run."""

    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRM = "confirm"
    WORST_CASE = "worst_case"
    VERIFY = "verify"


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


class StudyStatus(StrEnum):
    """Whether a study can still gain trials on its own."""

    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Workload:
    """Everything that must stay the same for two trials to be comparable."""

    model: str
    """Folder or hub id."""
    prompts: str
    """Path of the JSONL file the parent wrote."""
    prompts_sha256: str
    rewards: tuple[RewardSpec, ...]
    """Summed by the framework, with ``reward_weights`` of the passthrough where there are any."""
    rows_per_update: int
    """Completions per optimizer update, over all ranks."""
    max_prompt_length: int
    """Tokens."""
    max_completion_length: int
    """Tokens."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the user's own configuration that are not knobs, given to the framework unchanged."""
    model_sha256: str = ""
    """Of a model folder's file names, sizes and config, so that another model under the same path is seen; the
    commit of a hub id."""

    @property
    def digest(self) -> str:
        """SHA-256 of ``identity``."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """Plain data of what makes two workloads the same or not; of the prompts what they say, not where they lie."""
        value: dict[str, Any] = encode(self)
        value.pop("prompts")
        return value


@dataclass(frozen=True)
class StudySpec:
    """A search, complete: the same specification always means the same study.

    The budget is not part of it: more budget continues a study.
    """

    name: str
    workload: Workload
    framework: str
    space: Mapping[str, Any]
    """The search space as plain data (``SearchSpace.as_json``)."""
    baseline: Configuration
    resources: Resources
    sampler: str = "tpe"
    seed: int = 0
    protocol: Protocol = field(default_factory=Protocol)
    memory_limit: int | None = None
    python: str = ""
    """The training interpreter; part of the fingerprint, not of the identity."""
    user_config: str = ""
    """Text of the user's own configuration, as given by ``--config``. Not part of the identity: all it says
    stands in the other fields too."""
    user_folder: str = ""
    """Working directory that configuration speaks of; not part of the identity."""
    user_prompts: bool = False
    """The prompts are those that configuration names, not others given beside it; not part of the identity."""
    user_accelerate: str = ""
    """Text of the accelerate file given beside it; not part of the identity."""
    checkout: str = ""
    """Folder of the framework's own source, where its trials run from one; as ``python``, not part of the identity."""

    def identity(self) -> dict[str, Any]:
        """Plain data of everything that makes two studies the same or not."""
        value: dict[str, Any] = encode(self)
        value["workload"] = self.workload.identity()
        value["baseline"] = dict(self.baseline)
        value["resources"] = self.resources.as_json()
        if not value["protocol"]["double"]:  # which studies from before there was such a thing do not name
            value["protocol"].pop("double")
        value.pop("name")
        value.pop("python")
        for name in ("user_config", "user_folder", "user_prompts", "user_accelerate", "checkout"):
            value.pop(name)
        if not self.protocol.looks:  # as studies have it that were stored before there were looks
            value["protocol"].pop("looks")
        return value

    @property
    def digest(self) -> str:
        """SHA-256 of ``identity``."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class EarlierStudy:
    """Another study of the database whose trials a search begins with."""

    study_id: int
    name: str
    trials: tuple[int, ...]
    """Numbers of those that count. They had finished, so they never change."""
    distance: float
    """Doublings its figures have to be carried (``insights.related``)."""
    sentence: str
    """Which study it is, and what differs."""


@dataclass(frozen=True)
class Beforehand:
    """What a search knows before its first trial and beside its specification; fixed at its first start."""

    probe: Mapping[str, Any] = field(default_factory=dict)
    """What the device was measured to do (``Result.data`` of ``probe_speed``); empty: it could not be measured."""
    earlier: tuple[EarlierStudy, ...] = ()
    """Nearest first."""
    history: bool = True
    """Earlier studies were looked for; otherwise the user wanted none."""


@dataclass(frozen=True)
class Study:
    """A stored study."""

    id: int
    spec: StudySpec
    created_at: float
    status: StudyStatus = StudyStatus.OPEN
    lengths: tuple[int, ...] = ()
    """Recorded completion lengths every speed cycle replays; empty until the reference has run."""
    revision: int = 0
    """Grows with every change, so that a poller knows whether to look."""
    beforehand: Beforehand | None = None
    """``None``: nothing is known beforehand (a sampler that asks for nothing, or a study of an earlier version)."""


@dataclass(frozen=True)
class Ceiling:
    """Why a trial was ended before all its cycles: it cannot win. Tokens/hour; see ``autotune.stopping``."""

    at_most: float
    """What the trial can reach at most."""
    best_at_least: float
    """What the best it competes with has at least."""
    rival: int
    """Number of that trial."""
    cycles: int
    """Speed cycles of the trial this rests on."""
    physical: bool = False
    """By the phases of so few cycles that their noise is not known, not by the noise."""

    def sentence(self) -> str:
        """``stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.1k``."""
        cycles = f"{self.cycles} cycle{'' if self.cycles == 1 else 's'}"
        most, best = (f"{v / 1000:.1f}k" if v >= 1000 else f"{v:.3g}" for v in (self.at_most, self.best_at_least))
        return f"stopped after {cycles}: at most {most} tokens/hour, the best has at least {best}"


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. ``reason`` is ``None`` exactly when it ended OK."""

    reason: FailureReason | None = None
    phase: str | None = None
    """``Phase`` or ``StartupPart`` value."""
    pool: Pool | None = None
    message: str = ""
    suggestion: str = ""
    log_path: str = ""
    fresh: bool = True
    """The worker was fresh, or its memory was checked clean, when the trial began."""
    ceiling: Ceiling | None = None
    """Of a PRUNED trial: nothing went wrong, but it cannot win."""

    @property
    def ok(self) -> bool:
        return self.reason is None

    def sentence(self) -> str:
        """``OOM in update (host memory): ...``, ``OK`` or what stopped it."""
        if self.reason is None:
            return "OK" if self.ceiling is None else self.ceiling.sentence()
        where = f" in {self.phase}" if self.phase else ""
        pool = f" ({self.pool.value} memory)" if self.pool else ""
        text = f": {self.message}" if self.message else ""
        return f"{self.reason.value}{where}{pool}{text}"


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
    host_peak: int | None = None
    """Summed PSS of the process tree, by the parent's watchdog."""
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    seconds: float | None = None
    """Wall seconds of all attempts, start-up included."""

    def with_(self, **changes: Any) -> Trial:
        return replace(self, **changes)

    @property
    def emulated(self) -> bool:
        """It ran FP8 in emulation: that it runs is known, how fast is not."""
        return emulated(self.configuration)

    @property
    def at_most(self) -> float | None:
        """Tokens/hour a trial that was stopped early can reach at most; ``None`` of any other."""
        ceiling = None if self.outcome is None else self.outcome.ceiling
        return ceiling.at_most if ceiling is not None and self.state is TrialState.PRUNED else None

    @property
    def fits(self) -> bool:
        """Ended well and went through the worst case; of a PRUNED trial that is known too."""
        return self.worst_case_passed and self.state in (TrialState.COMPLETE, TrialState.PRUNED)

    @property
    def feasible(self) -> bool:
        """Finished, OK, and through the worst case."""
        return self.state is TrialState.COMPLETE and self.worst_case_passed

    def speed_cycles(self) -> tuple[CycleRecord, ...]:
        """The cycles speed is judged by: RECORDED and accepted, of rank 0 (the slowest rank's clock)."""
        return self._speed_cycles

    @cached_property
    def _speed_cycles(self) -> tuple[CycleRecord, ...]:
        return tuple(c for c in self.cycles if c.cycle_kind is CycleKind.RECORDED and c.accepted and c.rank == 0)

    @cached_property
    def tokens_per_hour(self) -> float | None:
        """Distinct completion tokens per hour over the speed cycles; ``None`` before there are any.

        ``None`` also of a PRUNED trial: it was ended when it could not win, so of it only a bound is known.
        """
        if self.state is TrialState.PRUNED:
            return None
        cycles = self.speed_cycles()
        seconds = sum(c.seconds for c in cycles)
        if not cycles or seconds <= 0:
            return None
        return 3600.0 * sum(c.completion_tokens for c in cycles) / seconds


@dataclass(frozen=True)
class Event:
    """Something that happened, for people and for the record."""

    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    trial: int | None = None
    at: float = 0.0
    id: int = 0


@dataclass(frozen=True)
class Fingerprint:
    """Hardware, driver, versions of all that moves the numbers, workload hash."""

    hardware: Mapping[str, Any]
    software: Mapping[str, str]
    workload: str
    """Digest of the workload."""

    @property
    def digest(self) -> str:
        text = json.dumps(encode(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Budget:
    """What may be spent; the first limit reached ends the study. ``None`` = no such limit."""

    wall_s: float | None = None
    max_trials: int | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True)
class Gain:
    """A ratio of throughputs minus one, with a two-sided 95 % interval; 0.25 means 25 % faster."""

    value: float
    low: float
    high: float
    pairs: int
    """Interleaved rounds it rests on; 0 means it was read from unconfirmed search trials."""
    cycles: int
    """Speed cycles on the smaller side."""

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class LengthFigure:
    """Tokens/hour of a configuration at one distribution of completion lengths."""

    at: str
    """``1x``: the recorded lengths; ``2x``: twice those, cut at the maximum; ``maximum``."""
    tokens_per_hour: float | None = None
    """``None``: not measured."""
    mean_length: float | None = None
    """Completion tokens of a row."""
    cycles: int = 0


@dataclass(frozen=True)
class RecommendationRow:
    """One answer: a configuration with its evidence."""

    title: str
    configuration: Configuration
    tokens_per_hour: float
    low: float
    high: float
    gain: Gain | None
    """Over the baseline, or over ``reference`` when the baseline failed; ``None`` if it is the reference itself."""
    confirmed: bool
    worst_case_passed: bool
    phase_shares: Mapping[str, float]
    """Share of cycle time by phase; they sum to 1."""
    limit: str
    """One sentence: what limits it."""
    host_peak: int | None
    device_peak: int | None
    headroom: float | None
    """1 - peak / limit of the pool closest to its limit; ``None`` if no limit is known."""
    trials: tuple[int, ...]
    """Numbers of the supporting trials."""
    changes: tuple[str, ...] = ()
    """Knobs that differ from the baseline, as ``name: before -> after``."""
    maximum_tokens_per_hour: float | None = None
    """At maximum completion length."""
    gpus: int = 0
    """GPUs held, those of a rollout server included: tokens/hour are over all of them. 0 on a CPU."""
    lengths: tuple[LengthFigure, ...] = ()
    """At 1x, 2x and the maximum length; empty in recommendations of earlier versions."""

    @property
    def tokens_per_hour_per_gpu(self) -> float | None:
        """``None`` on a CPU."""
        return self.tokens_per_hour / self.gpus if self.gpus else None


@dataclass(frozen=True)
class Recommendation:
    """What a study hands back."""

    study: str
    rows: tuple[RecommendationRow, ...]
    """First: same learning as the baseline. Second, if any: with permitted numerics or learning changes."""
    baseline: str
    """``ok``, or the sentence of how the baseline failed."""
    reference: int | None
    """Trial number gains are stated over; ``None`` if nothing ran."""
    ended_by: str
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    created_at: float = 0.0
