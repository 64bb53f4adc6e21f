"""A configuration in TRL's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks.trl.fates import for_trial
from trainer.frameworks.trl.keys import acting, model_keys, seams, training_keys, unsupported
from trainer.frameworks.trl.sharding import beside
from trainer.frameworks.trl.variables import variables


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cpu",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(``GRPOConfig`` arguments, model arguments, seams) of ``configuration``; knobs that do not act are ignored.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows; a
    knob that is not set is left to the user's own key, else to TRL's default.

    Args:
        longest: tokens of the longest prompt and completion (``training_keys``).
        passthrough: the user's own keys, whose mappings stay beside the knobs within them.

    Raises:
        ValueError: a knob or value TRL cannot be given (``unsupported``).
    """
    refused = unsupported(configuration)
    if refused:
        raise ValueError("; ".join(refused))
    training = beside(training_keys(configuration, longest, device), passthrough or {}, acting(configuration))
    micro = configuration.get("micro_batch_size")
    if micro is not None and "gradient_accumulation_steps" not in configuration:
        training["gradient_accumulation_steps"] = max(1, rows_per_update // (int(micro) * world_size))
    return training, model_keys(configuration), seams(configuration)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """The user's keys beside ``configuration``: a compiler named among them would turn compilation on.

    Args:
        measuring: with those a trial does without (``fates.MEASURING``).
    """
    found = dict(passthrough) if measuring else for_trial(passthrough)
    if configuration.get("torch_compile") is False:
        found.pop("torch_compile_backend", None)
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
    training, loading, replaced = settings(
        configuration,
        rows_per_update,
        world_size,
        device=device,
        longest=max_prompt_length + max_completion_length,
        passthrough=passthrough,
    )
    return TrialSpec(
        trial=trial,
        framework="trl",
        model=model,
        prompts=prompts,
        rewards=rewards,
        settings=training,
        model_settings=loading,
        seams=replaced,
        rows_per_update=rows_per_update,
        max_prompt_length=max_prompt_length,
        max_completion_length=max_completion_length,
        protocol=protocol,
        device=device,
        world_size=world_size,
        seed=seed,
        memory_limit=memory_limit,
        meter=meter,
        passthrough=own_keys(passthrough, configuration),
        revision=revision,
        environment=variables(configuration),
    )
