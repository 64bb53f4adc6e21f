"""The users' machines of frameworks with rollout servers, made up: 3 + 1 of four GPUs, 7 + 1 of eight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """A framework on its users' machine."""

    name: str
    word: str
    gpus: int
    rows: int
    """Per update, which all splits share."""
    sizes: tuple[str, str]
    """The server's options for the GPUs of a replica and for the replicas."""


CASES = (
    Case("open_r1", "openr1", 4, 24, ("--tensor_parallel_size", "--data_parallel_size")),
    Case("ms_swift", "swift", 8, 336, ("--vllm_tensor_parallel_size", "--vllm_data_parallel_size")),
)


def words_of(case: Case, folder: Path) -> tuple[str, ...]:
    """What ``autotune start`` is told of the framework and of a baseline that holds all GPUs; in ``folder`` its
    checkout."""
    words = ["--framework", case.word, "--set", "rollout_engine=vllm", "--set", "rollout_mode=colocate"]
    if case.name == "open_r1":
        script = folder / "open-r1" / "src" / "open_r1" / "grpo.py"
        script.parent.mkdir(parents=True)
        script.write_text("")
        words += ["--openr1", str(folder / "open-r1")]
    return (*words, "--effective-batch", str(case.rows), "--max-completion-length", "32")


def split(trial: Mapping[str, Any], gpus: int) -> tuple[int, int]:
    """(GPUs that train, GPUs of the server)."""
    given = trial["configuration"].get("rollout_gpus", 0) if trial["configuration"]["rollout_mode"] == "server" else 0
    return gpus - given, given
