"""A configuration in Open-R1's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks.open_r1.fates import for_trial
from trainer.frameworks.open_r1.keys import acting, to_keys
from trainer.frameworks.trl.deepspeed import deepspeed_config
from trainer.frameworks.trl.variables import variables

CHECKOUT = "AUTOTUNE_OPENR1"
"""Variable a trial finds the user's checkout of Open-R1 by."""


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    passthrough: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Recipe keys of ``configuration``; knobs that do not act are ignored.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows.

    Args:
        passthrough: the user's own keys, whose mappings stay beside the knobs within them.

    Raises:
        ValueError: a knob or value Open-R1 cannot be given (``keys.unsupported``).
    """
    found = to_keys(configuration)
    for key, ours in found.items():
        own = (passthrough or {}).get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping):
            found[key] = {**own, **ours}
    micro = configuration.get("micro_batch_size")
    if micro is not None and "gradient_accumulation_steps" not in configuration:
        found["gradient_accumulation_steps"] = max(1, rows_per_update // (int(micro) * world_size))
    return found


def render(
    *,
    trial: str,
    configuration: Mapping[str, KnobValue],
    model: str,
    prompts: str,
    rewards: tuple[RewardSpec, ...],
    rows_per_update: int,
    max_prompt_length: int,
    max_completion_length: int,
    protocol: Protocol,
    passthrough: Mapping[str, Any],
    checkout: str,
    device: str = "cpu",
    world_size: int = 1,
    seed: int = 0,
    memory_limit: int | None = None,
    meter: bool = True,
    revision: str = "",
) -> TrialSpec:
    """The spec of one trial.

    Args:
        checkout: folder of the user's Open-R1.

    Raises:
        ValueError: a knob or value Open-R1 cannot be given, or no checkout is named.
    """
    if not checkout:
        raise ValueError("an Open-R1 trial needs a checkout of Open-R1, whose grpo.py it runs")
    chosen = settings(configuration, rows_per_update, world_size, passthrough=passthrough)
    if sharding := deepspeed_config(acting(configuration), device):
        chosen["deepspeed"] = sharding
    return TrialSpec(
        trial=trial,
        framework="open_r1",
        model=model,
        prompts=prompts,
        rewards=rewards,
        settings=chosen,
        model_settings={},
        seams={},
        rows_per_update=rows_per_update,
        max_prompt_length=max_prompt_length,
        max_completion_length=max_completion_length,
        protocol=protocol,
        device=device,
        world_size=world_size,
        seed=seed,
        memory_limit=memory_limit,
        meter=meter,
        passthrough=for_trial(passthrough),
        revision=revision,
        environment={**variables(configuration), CHECKOUT: checkout},
    )
