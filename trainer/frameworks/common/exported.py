"""Input and result of an export, shared by all frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import RewardSpec

ACCELERATE = "accelerate.yaml"
DEEPSPEED = "deepspeed.json"
RUN = "run.sh"
SERVER = "server.sh"
LAUNCHER = "launch.py"
PROMPTS = "prompts"
"""Folder of the prompts, in the form of ``datasets``: its only file is the ``train`` split."""


@dataclass(frozen=True)
class ExportRequest:
    """Input of an export: a configuration with its workload, interpreter and machine."""

    title: str
    """Title line of the files."""
    configuration: Mapping[str, KnobValue]
    python: str
    """Training interpreter."""
    model: str
    """Folder or hub id."""
    rewards: tuple[RewardSpec, ...]
    rows_per_update: int
    max_completion_length: int
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    revision: str = ""
    """Commit of a hub id."""
    max_prompt_length: int | None = None
    """Tokens; vLLM is sized for prompt and completion together."""
    device: str = "cpu"
    world_size: int = 1
    """Processes that train."""
    nodes: int = 1
    """Machines with the same number of GPUs; on several, the user's own script starts the processes."""
    seed: int = 0
    threads: int = 1
    """CPU threads of a training process: the launcher would choose its own."""
    cores: int = 0
    """CPU cores of the measured machine; 0 if unknown."""
    user_config: str = ""
    """Text of the user's own configuration; if empty, a new configuration is written."""
    own_data: bool = False
    """The user's configuration names the prompts, so they are not exported."""
    folder: str = ""
    """The user's working directory, to which paths of the user's configuration are relative."""
    accelerate: str = ""
    """Text of the user's own accelerate file, for Open-R1; if empty, a new file is written."""
    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    vllm: str = ""
    """Version of the vLLM that was measured; empty if it is not known."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that an ms-swift trial added to load this model and read these prompts (its fact ``arguments``), such
    as ``model_type``; the user's own override them."""

    @property
    def longest(self) -> int | None:
        """Tokens of the longest prompt with the longest completion; ``None`` if the prompts' lengths are unknown."""
        return None if self.max_prompt_length is None else self.max_prompt_length + self.max_completion_length

    @property
    def sizes(self) -> dict[str, Any]:
        """As ``trial_arguments.sizes``."""
        return {name: getattr(self, name) for name in ("rows_per_update", "world_size", "device", "longest")}


@dataclass(frozen=True)
class Command:
    """The command that trains. ``{here}`` in a word stands for the exported folder."""

    argv: tuple[str, ...]
    folder: str
    """Working directory: ``{here}``, a path, or empty for the caller's."""
    environment: Mapping[str, str]
    """Variables set unless the caller sets them; ``PYTHONPATH`` is put in front of the caller's."""


@dataclass(frozen=True)
class Export:
    """All files of an export except the prompts, which are copied."""

    files: Mapping[str, str]
    command: Command
    seams: Mapping[str, KnobValue]
    """Knobs without a key in the framework and with another value than its own; the launcher sets them."""
    parts: tuple[str, ...]
    """Further tasks of the launcher, a sentence each (``seam_files.Part.why``)."""
    prompts: bool
    """Whether ``prompts/train.jsonl`` belongs to the export."""
    diff: str = ""
    """Diff against the user's own configuration; empty without one."""
    health: str = ""
    """URL that answers once the rollout server (script ``SERVER``) is ready; empty without a server."""

    @property
    def server(self) -> bool:
        """Whether a rollout server has to be started first."""
        return bool(self.health)
