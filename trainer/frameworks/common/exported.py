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
"""Folder of the prompts, as ``datasets`` takes one: its only file is the ``train`` split."""


@dataclass(frozen=True)
class ExportRequest:
    """Input of an export: a configuration with its workload, interpreter and machine."""

    title: str
    """One line for the heads of the files."""
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
    """Tokens; with the completion's, what vLLM prepares for."""
    device: str = "cpu"
    world_size: int = 1
    """Processes that train."""
    nodes: int = 1
    """Machines with equally many GPUs; who starts the processes of several is left to the user's own script."""
    seed: int = 0
    threads: int = 1
    """CPU threads of a training process: the launcher would choose its own."""
    cores: int = 0
    """CPU cores of the machine that was measured; 0 if they are not known."""
    user_config: str = ""
    """Text of the user's own configuration; empty writes one."""
    own_data: bool = False
    """The prompts are those the user's configuration names, so they are not exported."""
    folder: str = ""
    """The user's working directory, which a configuration of their own speaks of."""
    accelerate: str = ""
    """Text of the user's own accelerate file, for Open-R1; empty writes one."""
    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Arguments a trial of ms-swift had to add to load this model and read these prompts (its fact ``arguments``), such
    as ``model_type``; the user's own go before them."""

    @property
    def longest(self) -> int | None:
        """Tokens of the longest prompt with the longest completion; ``None`` where no prompt's length is known."""
        return None if self.max_prompt_length is None else self.max_prompt_length + self.max_completion_length

    @property
    def sizes(self) -> dict[str, Any]:
        """As ``trial_arguments.sizes``."""
        return {
            "rows_per_update": self.rows_per_update,
            "world_size": self.world_size,
            "device": self.device,
            "longest": self.longest,
        }


@dataclass(frozen=True)
class Command:
    """The command that trains. ``{here}`` in a word stands for the exported folder."""

    argv: tuple[str, ...]
    folder: str
    """Where it runs: ``{here}``, a path, or empty for wherever it is started."""
    environment: Mapping[str, str]
    """Set unless the caller has set it; ``PYTHONPATH`` is put in front of the caller's."""


@dataclass(frozen=True)
class Export:
    """Everything but the prompts, which are copied."""

    files: Mapping[str, str]
    command: Command
    seams: Mapping[str, KnobValue]
    """Knobs that the framework has no key for, with a value other than its own: the launcher sets them."""
    parts: tuple[str, ...]
    """What else the launcher is for, a sentence each (``seam_files.Part.why``)."""
    prompts: bool
    """Whether ``prompts/train.jsonl`` belongs to it."""
    diff: str = ""
    """Against the user's own configuration; empty without one."""
    health: str = ""
    """URL that answers when the rollout server is ready that has to be started first, by ``SERVER``; else empty."""

    @property
    def server(self) -> bool:
        """Whether a rollout server has to be started first."""
        return bool(self.health)
