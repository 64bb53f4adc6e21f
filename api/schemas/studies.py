"""Shapes of studies, their state, and the machines their figures were measured on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.answers import Recommendation
from api.schemas.base import Bytes, Knob, Seconds, Shape, Share, Time
from api.schemas.trials import Place, Trial
from autotune.domain import StudyStatus
from autotune.recommendation.places import PlaceState
from autotune.recommendation.reading import RunState


class Reward(Shape):
    """A reward function and its source."""

    kind: str
    name: str


class Study(Shape):
    """A search: workload, machine, baseline."""

    id: int
    name: str
    status: StudyStatus = Field(strict=False, description="`done`: no more trials unless it is started again.")
    state: RunState = Field(strict=False, description="`interrupted`: the command that began the study continues it.")
    created_at: Time | None
    revision: int = Field(description="Grows with every change of the study.")
    digest: str = Field(description="SHA-256 of the settings that identify the study.")
    framework: str
    model: str = Field(description="Folder or hub id.")
    rewards: list[Reward]
    rows_per_update: int = Field(description="Completions per optimizer update, over all ranks.")
    max_prompt_tokens: int
    max_completion_tokens: int
    gpus: int = Field(description="Over all nodes; 0 on a CPU.")
    device: str
    memory_limit_bytes: Bytes | None
    sampler: str
    objective: str = Field(description="Figure that ranks trials: `tokens-per-hour` or `tokens-per-gpu-hour`.")
    seed: int
    python: str = Field(description="Training interpreter.")
    baseline: dict[str, Knob] = Field(description="Knob name to value.")
    recorded_lengths_tokens: list[int] = Field(description="Completion lengths that every timed cycle replays.")


class Studies(Shape):
    """A page of studies, newest first."""

    studies: list[Study]
    total: int = Field(description="Number of studies on all pages.")
    next_cursor: str | None = Field(description="`cursor` of the next page; `null` on the last page.")


class Spent(Shape):
    """Time spent over all runs of the tuner."""

    wall_seconds: Seconds | None
    gpu_seconds: Seconds | None


class Budget(Shape):
    """Budget of the last run of the tuner; `null`: no such limit."""

    wall_seconds: Seconds | None
    max_trials: int | None
    gpu_hours: float | None
    trials_at_once: int = Field(description="Number of trials that run in parallel.")


class Counts(Shape):
    """Trials by state, and failures by reason."""

    states: dict[str, int]
    failures: dict[str, int]


class PlaceNow(Place):
    """A slot of the running tuner, and its state."""

    state: PlaceState = Field(strict=False, description="`left`: the slot gets no more trials.")
    trial: int | None = Field(description="Number of the trial that runs in the slot.")
    why: str | None = Field(description="Reason why the slot gets no more trials.")
    gpu_busy_share: Share | None = Field(description="Share of the last cycle's time in which a GPU kernel ran.")


class Running(Trial):
    """A running trial with its slot and progress."""

    place: Place
    phase: str | None
    cycle: int | None
    cycle_kind: str | None
    phase_age_seconds: Seconds | None = Field(description="Seconds since the phase was last reported.")


class Status(Shape):
    """State of a study."""

    study: Study
    spent: Spent
    budget: Budget
    counts: Counts
    running: list[Running] = Field(description="Ordered by trial number; several with `--at-once`.")
    places: list[PlaceNow] = Field(description="One slot per parallel trial; empty if no tuner runs.")
    avoided_gpus: list[str] = Field(description="A sentence for each GPU that trials do not use, with its fault.")
    source: str
    best: Recommendation | None


class Fingerprint(Shape):
    """Hardware, driver, versions and workload."""

    digest: str = Field(description="Digest of hardware, software and workload.")
    first_seen_at: Time | None
    hardware: dict[str, Any] = Field(description="`cpu`, `cores`, `memory_bytes`, `driver`, `gpus` and more, if known.")
    software: dict[str, str] = Field(description="Package to version.")
    workload: str = Field(description="Digest of the workload.")


class Fingerprints(Shape):
    """Fingerprints of a study, the oldest first."""

    study: str
    fingerprints: list[Fingerprint]
