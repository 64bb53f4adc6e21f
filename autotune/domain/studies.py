"""A study: specification, status, budget and events; workload and fingerprint, which have to be equal for figures to be
compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from autotune.domain.trials import TrialDraft, TrialKind
from search_spaces.batch import data_ranks
from search_spaces.configuration import Configuration, Resources
from trainer.child.contract import Protocol, RewardSpec, encode


def digest_of(value: Any) -> str:
    """SHA-256 of plain data, by its canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
        return digest_of(self.identity())

    def identity(self) -> dict[str, Any]:
        """Plain data that is equal for equal workloads; prompts count by their content, not by their path."""
        value: dict[str, Any] = encode(self)
        value.pop("prompts")
        return value


@dataclass(frozen=True)
class Fingerprint:
    """Hardware, driver, versions of all that moves the numbers, workload hash."""

    hardware: Mapping[str, Any]
    software: Mapping[str, str]
    workload: str
    """Digest of the workload."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))


SWEEP = "sweep"
"""``StudySpec.sampler`` of a study that records a table (``autotune.tables.sweep``)."""


class StudyStatus(StrEnum):
    """Whether a study can still gain trials on its own."""

    OPEN = "open"
    DONE = "done"


class Objective(StrEnum):
    """Objective of a study: the figure that trials are ranked by."""

    PER_HOUR = "tokens-per-hour"
    PER_GPU_HOUR = "tokens-per-gpu-hour"


@dataclass(frozen=True)
class StudySpec:
    """Complete specification of a search: the same specification always means the same study.

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
    objective: Objective = Objective.PER_HOUR

    def identity(self) -> dict[str, Any]:
        """Plain data that is equal for equal studies."""
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
        if self.objective is Objective.PER_HOUR:  # which studies from before there was another do not name
            value.pop("objective")
        if not self.protocol.looks:  # as studies have it that were stored before there were looks
            value["protocol"].pop("looks")
        return value

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ``identity``."""
        return digest_of(self.identity())


@dataclass(frozen=True)
class EarlierStudy:
    """Reference to a stored study whose trials a search begins with."""

    study_id: int
    name: str
    trials: tuple[int, ...]
    """Numbers of those that count. They had finished, so they never change."""
    distance: float
    """Doublings its figures have to be carried (``insights.related``)."""
    sentence: str
    """Which study it is, and what differs."""


@dataclass(frozen=True)
class PriorKnowledge:
    """Prior knowledge of a search beside its specification; fixed at its first start."""

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
    """Recorded completion lengths that speed cycles replay, but where a knob moves the lengths
    (``statistics.lengths.replayed``); empty until the reference has run."""
    revision: int = 0
    """Grows with every change, so that a poller knows whether to look."""
    beforehand: PriorKnowledge | None = None
    """``None``: nothing is known beforehand: the sampler asks for nothing."""

    def rows(self, configuration: Configuration) -> int:
        """Rows per update of a configuration: micro-batch x accumulation x training ranks."""
        micro, accumulation = configuration.get("micro_batch_size"), configuration.get("gradient_accumulation_steps")
        if isinstance(micro, int) and isinstance(accumulation, int):
            return micro * accumulation * data_ranks(configuration, self.spec.resources)
        return self.spec.workload.rows_per_update

    def draft(self, kind: TrialKind, configuration: Configuration, protocol: Protocol, source: str) -> TrialDraft:
        """A trial of ``configuration``, with its rows; ``source`` proposed it."""
        return TrialDraft(kind, configuration, protocol, self.rows(configuration), source=source)


@dataclass(frozen=True)
class Budget:
    """Limits of a study; the first limit reached ends it. ``None`` = no such limit."""

    wall_s: float | None = None
    max_trials: int | None = None
    gpu_hours: float | None = None
    at_once: int = 1
    """Trials that may run side by side, each with as many GPUs as the study gives one."""

    def seconds_on(self, gpus: int) -> float | None:
        """Wall seconds of the whole budget, where a trial has ``gpus``; ``None`` without a time limit. GPU-hours limit
        nothing without GPUs."""
        by_gpus = self.gpu_hours * 3600.0 / (gpus * self.at_once) if self.gpu_hours is not None and gpus > 0 else None
        return min((limit for limit in (self.wall_s, by_gpus) if limit is not None), default=None)


@dataclass(frozen=True)
class Event:
    """An entry of a study's log."""

    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    trial: int | None = None
    at: float = 0.0
    id: int = 0
