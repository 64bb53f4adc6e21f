"""Arguments of every framework's ``render``: the trial's workload, protocol and machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec


class TrialArguments(TypedDict):
    """Fields of ``TrialSpec`` that do not depend on the framework; meaning and defaults are in ``TrialSpec``."""

    trial: str
    model: str
    prompts: str
    rewards: tuple[RewardSpec, ...]
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    protocol: Protocol
    device: NotRequired[str]
    world_size: NotRequired[int]
    seed: NotRequired[int]
    memory_limit: NotRequired[int | None]
    meter: NotRequired[bool]
    revision: NotRequired[str]


def sizes(trial: TrialArguments) -> dict[str, Any]:
    """Returns the arguments of a framework's ``settings`` besides the configuration; ``longest`` is in tokens."""
    return {
        "rows_per_update": trial["rows_per_update"],
        "world_size": trial.get("world_size", 1),
        "device": trial.get("device", "cpu"),
        "longest": trial["max_prompt_length"] + trial["max_completion_length"],
    }


def following(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> int | None:
    """Returns the accumulation that keeps an update's rows; ``None`` if it is set, or no micro-batch is set.

    ``ranks`` is the number of data-parallel training processes.
    """
    micro = configuration.get("micro_batch_size")
    if micro is None or "gradient_accumulation_steps" in configuration:
        return None
    return max(1, rows_per_update // (int(micro) * ranks))
