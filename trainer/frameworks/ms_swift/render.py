"""A configuration in ms-swift's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks.ms_swift.environment import variables
from trainer.frameworks.ms_swift.fates import for_trial
from trainer.frameworks.ms_swift.key_tables import CHECKPOINTING, ENGINE_KEY
from trainer.frameworks.ms_swift.keys import acting, seams, to_keys
from trainer.frameworks.ms_swift.objective import OBJECTIVE
from trainer.frameworks.trl.sharding import merged

NO_SERVER = (
    "rollout_mode server: a trial cannot give the completions of ms-swift's rollout server a length; use colocate"
)
_MAPPINGS = ("deepspeed", ENGINE_KEY, CHECKPOINTING[0])
"""Arguments that hold knobs and what is beside them."""


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cpu",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(Arguments of ``swift rlhf``, nothing, seams) of ``configuration``; knobs that do not act are ignored.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows. Rows of an update
    are micro-batch x accumulation x ranks with rows of their own; where ranks share sequences ms-swift is told an
    accumulation that many times smaller.

    Args:
        longest: tokens of the longest prompt and completion (``to_keys``).
        passthrough: the user's own arguments, whose mappings stay beside the knobs within them.

    Raises:
        ValueError: a knob or value ms-swift cannot be given (``unsupported``).
    """
    whole = dict(configuration)
    micro = configuration.get("micro_batch_size")
    if micro is not None and "gradient_accumulation_steps" not in configuration:
        ranks = max(1, world_size // int(configuration.get("sequence_parallel_size", 1)))
        whole["gradient_accumulation_steps"] = max(1, rows_per_update // (int(micro) * ranks))
    found = to_keys(whole, longest, device)
    for key in _MAPPINGS:
        own = (passthrough or {}).get(key)
        if isinstance(own, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = merged(own, found[key])
    return found, {}, seams(whole)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """The user's arguments beside ``configuration``; what they do not say of the objective is said (``OBJECTIVE``).

    Args:
        measuring: with those a trial does without (``fates.MEASURING``).
    """
    found = {**OBJECTIVE, **(dict(passthrough) if measuring else for_trial(passthrough))}
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
        ValueError: a knob or value ms-swift cannot be given, or a rollout server, which cannot be told lengths.
    """
    if acting(configuration).get("rollout_mode") == "server":
        raise ValueError(NO_SERVER)
    arguments, loading, replaced = settings(
        configuration,
        rows_per_update,
        world_size,
        device=device,
        longest=max_prompt_length + max_completion_length,
        passthrough=passthrough,
    )
    return TrialSpec(
        trial=trial,
        framework="ms_swift",
        model=model,
        prompts=prompts,
        rewards=rewards,
        settings=arguments,
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
