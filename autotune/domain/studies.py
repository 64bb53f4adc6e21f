"""A study: its specification, workload, status, budget and events, and the fingerprint of its machine and software."""

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
    """Returns the SHA-256 of plain data, taken over its canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Workload:
    """Everything that must be equal for the figures of two trials to be comparable."""

    model: str
    """Folder of the model, or its hub id."""
    prompts: str
    """Path of the JSONL file of prompts that the tuner wrote."""
    prompts_sha256: str
    rewards: tuple[RewardSpec, ...]
    """Rewards of a completion; the framework sums them, weighted by ``reward_weights`` of the passthrough if it has
    any."""
    rows_per_update: int
    """Completions per optimizer update, over all ranks."""
    max_prompt_length: int
    """Longest prompt, in tokens."""
    max_completion_length: int
    """Longest completion, in tokens."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the user's own configuration that are not knobs; the framework receives them unchanged."""
    model_sha256: str = ""
    """Hash of a model folder's file names, sizes and config, so that a replaced model is noticed; a hub id's commit."""

    @property
    def digest(self) -> str:
        """SHA-256 of ``identity``."""
        return digest_of(self.identity())

    def identity(self) -> dict[str, Any]:
        """Returns plain data that is equal for equal workloads; the content of prompts counts, their path does not."""
        value: dict[str, Any] = encode(self)
        value.pop("prompts")
        for reward in value["rewards"]:
            reward.pop("folder")
        return value


@dataclass(frozen=True)
class Fingerprint:
    """Hardware, driver and software versions that figures depend on, with the digest of the workload."""

    hardware: Mapping[str, Any]
    software: Mapping[str, str]
    workload: str
    """``Workload.digest``."""

    @property
    def digest(self) -> str:
        return digest_of(encode(self))


class StudyStatus(StrEnum):
    """Status of a study: OPEN while the tuner may still add trials, DONE after that."""

    OPEN = "open"
    DONE = "done"


class Objective(StrEnum):
    """Objective of a study: the figure that trials are ranked by."""

    PER_HOUR = "tokens-per-hour"
    PER_GPU_HOUR = "tokens-per-gpu-hour"


@dataclass(frozen=True)
class StudySpec:
    """Complete specification of a study. Equal specifications mean the same study.

    The budget is not part of it: more budget continues a study.
    """

    name: str
    workload: Workload
    framework: str
    space: Mapping[str, Any]
    """Search space as plain data (``SearchSpace.as_json``)."""
    baseline: Configuration
    resources: Resources
    sampler: str = "tpe"
    seed: int = 0
    protocol: Protocol = field(default_factory=Protocol)
    memory_limit: int | None = None
    python: str = ""
    """Path of the training interpreter. Part of the fingerprint, not of the identity."""
    user_config: str = ""
    """Text of the user's own configuration (``--config``). Not part of the identity, because the other fields repeat
    its content."""
    user_folder: str = ""
    """Folder that relative paths in the user's configuration start from; not part of the identity."""
    user_prompts: bool = False
    """An export trains on the dataset that configuration names, whatever trials have; not part of the identity."""
    user_accelerate: str = ""
    """Text of the user's accelerate file; empty without one; not part of the identity."""
    checkout: str = ""
    """Folder of the framework's source that trials run from; empty if they run an installed package. Not part of the
    identity."""
    objective: Objective = Objective.PER_HOUR
    variables: tuple[str, ...] = ()
    """Names of the tuner's environment variables that trials receive besides; not part of the identity."""

    def identity(self) -> dict[str, Any]:
        """Returns plain data that is equal for equal studies."""
        value: dict[str, Any] = encode(self)
        value["workload"] = self.workload.identity()
        value["baseline"] = dict(self.baseline)
        value["resources"] = self.resources.as_json()
        value["resources"].pop("model")  # read of the model, whose digest is the workload's; a later reading knows more
        value.pop("name")
        value.pop("python")
        for name in ("user_config", "user_folder", "user_prompts", "user_accelerate", "checkout", "variables"):
            value.pop(name)
        return value

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ``identity``."""
        return digest_of(self.identity())


@dataclass(frozen=True)
class EarlierStudy:
    """Reference to a stored study whose trials a new search starts with."""

    study_id: int
    name: str
    trials: tuple[int, ...]
    """Numbers of its finished trials that are used."""
    distance: float
    """Distance between the two studies, in doublings (``insights.related``)."""
    sentence: str
    """Sentence that names the study and its differences."""


@dataclass(frozen=True)
class PriorKnowledge:
    """Knowledge that a search starts with, besides its specification; fixed at the first start of the study."""

    probe: Mapping[str, Any] = field(default_factory=dict)
    """Measured speeds of the device (``Result.data`` of ``probe_speed``); empty if they could not be measured."""
    earlier: tuple[EarlierStudy, ...] = ()
    """Earlier studies, nearest first."""
    history: bool = True
    """True if earlier studies were looked for; False if the user declined them."""


@dataclass(frozen=True)
class Study:
    """A stored study."""

    id: int
    spec: StudySpec
    created_at: float
    status: StudyStatus = StudyStatus.OPEN
    lengths: tuple[int, ...] = ()
    """Recorded completion lengths, in tokens, that speed cycles replay unless a knob changes lengths
    (``statistics.lengths.replayed``); empty until the reference has run."""
    revision: int = 0
    """Counter that grows with every change of the study, so that a poller notices changes."""
    beforehand: PriorKnowledge | None = None
    """Prior knowledge of the search; ``None`` if the sampler requires none."""

    def rows(self, configuration: Configuration) -> int:
        """Returns the rows per update of a configuration: micro-batch x accumulation x training ranks."""
        micro, accumulation = configuration.get("micro_batch_size"), configuration.get("gradient_accumulation_steps")
        if isinstance(micro, int) and isinstance(accumulation, int):
            return micro * accumulation * data_ranks(configuration, self.spec.resources)
        return self.spec.workload.rows_per_update

    def draft(self, kind: TrialKind, configuration: Configuration, protocol: Protocol, source: str) -> TrialDraft:
        """Returns a draft of a trial of ``configuration`` with its rows per update; ``source`` names the proposer."""
        return TrialDraft(kind, configuration, protocol, self.rows(configuration), source=source)


@dataclass(frozen=True)
class Budget:
    """Limits of a study; the first limit reached ends the study. ``None`` means no limit."""

    wall_s: float | None = None
    max_trials: int | None = None
    gpu_hours: float | None = None
    at_once: int = 1
    """Trials that may run side by side, each with the GPUs of one trial."""

    def seconds_on(self, gpus: int) -> float | None:
        """Returns the wall seconds of the whole budget if each trial has ``gpus``; ``None`` without a time limit.
        Without GPUs, ``gpu_hours`` sets no limit."""
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
