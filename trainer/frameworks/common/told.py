"""What every framework's ``render`` is told of a trial, whatever trains it."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from trainer.child.contract import Protocol, RewardSpec


class Told(TypedDict):
    """By the names ``TrialSpec`` has, where the meaning and the defaults stand."""

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


def longest(told: Told) -> int:
    """Tokens of the longest prompt with the longest completion."""
    return told["max_prompt_length"] + told["max_completion_length"]
