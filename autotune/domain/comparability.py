"""Workload and fingerprint: the properties that must be equal for figures to be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.child.contract import RewardSpec, encode


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
        text = json.dumps(encode(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
