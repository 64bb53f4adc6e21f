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
    unset = defaults(task.resources.framework)

    def get(name: str) -> object:
        return configuration.get(name, unset.get(name))

    vllm = get("rollout_engine") == "vllm"
    # Without a GPU an engine is eager unless the configuration says otherwise.
    eager = configuration.get("enforce_eager", task.resources.device == "cpu")
    return (
        vllm,
        vllm and get("rollout_mode") == "server",
        vllm and eager is not True,
        get("torch_compile") is True,
        get("zero_stage") in (1, 2, 3) or get("fsdp") in ("fsdp1", "fsdp2"),
    )
