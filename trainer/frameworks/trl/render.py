"""A configuration in TRL's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.key_handling import uncompiled
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.trial_arguments import TrialArguments, following, sizes
from trainer.frameworks.common.variables import variables
from trainer.frameworks.trl.key_handling import for_trial
from trainer.frameworks.trl.keys import acting, model_keys, seams, training_keys, unsupported
from trainer.frameworks.trl.sharding import beside


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
    refuse(unsupported(configuration))
    training = beside(training_keys(configuration, longest, device), passthrough or {}, acting(configuration))
    steps = following(configuration, rows_per_update, world_size)
    if steps is not None:
        training["gradient_accumulation_steps"] = steps
    return training, model_keys(configuration), seams(configuration)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """The user's keys beside ``configuration``.

    Args:
        measuring: with those a trial does without (``key_handling.MEASURING``).
    """
    return uncompiled(passthrough if measuring else for_trial(passthrough), configuration)


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    """The spec of one trial.

    Raises:
        ValueError: a knob or value TRL cannot be given.
    """
    training, loading, replaced = settings(configuration, **sizes(trial), passthrough=passthrough)
    return TrialSpec(
        framework="trl",
        settings=training,
        model_settings=loading,
        seams=replaced,
        passthrough=own_keys(passthrough, configuration),
        environment=variables(configuration),
        **trial,
    )
