"""What kind of process a configuration needs, as far as its start depends on it; pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.proposals.forecasts import Task
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults

Key = tuple[bool, bool, bool, bool, bool]
"""vLLM; as a server; engine compiles; trainer compiles; trainer is sharded."""


def key_of(task: Task, configuration: Mapping[str, KnobValue]) -> Key:
    """The kind of process a configuration needs."""
    unset = defaults(task.resources.framework, task.resources.device)

    def get(name: str) -> object:
        return configuration.get(name, unset.get(name))

    vllm = get("rollout_engine") == "vllm"
    return (
        vllm,
        vllm and get("rollout_mode") == "server",
        vllm and get("enforce_eager") is not True,
        get("torch_compile") is True,
        get("zero_stage") in (1, 2, 3) or get("fsdp") in ("fsdp1", "fsdp2"),
    )
