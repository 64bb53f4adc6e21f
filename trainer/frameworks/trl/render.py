"""A configuration in TRL's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks.trl.fates import for_trial
from trainer.frameworks.trl.keys import SEAMS, model_keys, training_keys, unsupported


def settings(
    configuration: Mapping[str, KnobValue], rows_per_update: int, world_size: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(``GRPOConfig`` arguments, model arguments, seams) of ``configuration``.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows; a
    knob that is not set is left to the user's own key, else to TRL's default.

    Raises:
        ValueError: a knob or value TRL cannot be given (``unsupported``).
    """
    refused = unsupported(configuration)
    if refused:
        raise ValueError("; ".join(refused))
    training = training_keys(configuration)
    micro = configuration.get("micro_batch_size")
    if micro is not None and "gradient_accumulation_steps" not in configuration:
        training["gradient_accumulation_steps"] = max(1, rows_per_update // (int(micro) * world_size))
    seams = {knob: configuration[knob] for knob in sorted(SEAMS) if knob in configuration}
    return training, model_keys(configuration), seams


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
    device: str = "cpu",
    world_size: int = 1,
    seed: int = 0,
    memory_limit: int | None = None,
    meter: bool = True,
    revision: str = "",
) -> TrialSpec:
    """The spec of one trial.

    Raises:
        ValueError: a knob or value TRL cannot be given.
    """
    training, loading, seams = settings(configuration, rows_per_update, world_size)
    return TrialSpec(
        trial=trial,
        framework="trl",
        model=model,
        prompts=prompts,
        rewards=rewards,
        settings=training,
        model_settings=loading,
        seams=seams,
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
    )
