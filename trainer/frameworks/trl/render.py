"""A configuration in TRL's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.key_handling import uncompiled
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.trial_arguments import TrialArguments, following, sizes
from trainer.frameworks.common.values import variables
from trainer.frameworks.trl.key_handling import for_trial
from trainer.frameworks.trl.keys import acting, model_keys, seams, training_keys, unsupported, with_own


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cpu",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns (``GRPOConfig`` arguments, model arguments, seams) of ``configuration``, without knobs without an effect.

    An accumulation that is not set follows from the micro-batch, so that an update keeps its rows; any other knob that
    is not set has the value of the user's own key, else TRL's default.

    Args:
        longest: tokens of the longest prompt and completion (``training_keys``).
        passthrough: the user's own keys, whose mappings are merged with the knobs.

    Raises:
        ValueError: a knob or value that TRL cannot take (``unsupported``).
    """
    refuse(unsupported(configuration))
    training = with_own(training_keys(configuration, longest, device), passthrough or {}, acting(configuration))
    steps = following(configuration, rows_per_update, world_size)
    if steps is not None:
        training["gradient_accumulation_steps"] = steps
    return training, model_keys(configuration), seams(configuration)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """Returns the user's keys that are no knobs.

    ``measuring`` includes the keys that a trial ignores (``key_handling.MEASURING``).
    """
    return uncompiled(passthrough if measuring else for_trial(passthrough), configuration)


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    """Builds the spec of one trial. Raises ValueError for a knob or value that TRL cannot take."""
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
