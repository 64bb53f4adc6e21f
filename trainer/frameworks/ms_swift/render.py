"""A configuration in ms-swift's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.deepspeed import beside_zero, merged
from trainer.frameworks.common.key_handling import uncompiled
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.trial_arguments import TrialArguments, following, sizes
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.environment import variables
from trainer.frameworks.ms_swift.key_handling import for_trial
from trainer.frameworks.ms_swift.key_tables import CHECKPOINTING, ENGINE_KEY
from trainer.frameworks.ms_swift.keys import acting, seams, to_keys, unsupported
from trainer.frameworks.ms_swift.objective import OBJECTIVE, in_megatrons_words

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
    """(Arguments of ``swift rlhf`` or ``megatron rlhf``, nothing, seams) of ``configuration``.

    Knobs that do not act are ignored.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows. Rows of an update
    are micro-batch x accumulation x ranks with rows of their own; where ranks share sequences ms-swift is told an
    accumulation that many times smaller.

    Args:
        longest: tokens of the longest prompt and completion (``to_keys``).
        passthrough: the user's own arguments, whose mappings stay beside the knobs within them.

    Raises:
        ValueError: a knob or value ms-swift cannot be given (``unsupported``).
    """
    ranks = max(1, world_size // model_parallel(configuration))
    steps = following(configuration, rows_per_update, ranks)
    whole = dict(configuration) if steps is None else {**configuration, "gradient_accumulation_steps": steps}
    found = to_keys(whole, longest, device)
    if megatron.chosen(whole):
        found.update(megatron.rows(whole, rows_per_update, ranks))
    for key in _MAPPINGS:
        own = (passthrough or {}).get(key)
        ours = found.get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping):
            zero = key == "deepspeed"  # where a user may leave to ms-swift what a knob that is not set would say
            found[key] = beside_zero(ours, own, acting(whole)) if zero else merged(own, ours)
    return found, {}, seams(whole)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """The user's arguments that are no knobs. Objective settings that the user left out are written explicitly
    (``OBJECTIVE``).

    Args:
        measuring: includes the arguments that trials ignore (``key_handling.MEASURING``).
    """
    objective = in_megatrons_words(OBJECTIVE) if megatron.chosen(configuration) else OBJECTIVE
    return {**objective, **uncompiled(passthrough if measuring else for_trial(passthrough), configuration)}


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    """The spec of one trial.

    Raises:
        ValueError: a knob or value ms-swift cannot be given.
    """
    refuse(unsupported(configuration))
    arguments, loading, replaced = settings(configuration, **sizes(trial), passthrough=passthrough)
    return TrialSpec(
        framework="ms_swift",
        settings=arguments,
        model_settings=loading,
        seams=replaced,
        passthrough=own_keys(passthrough, configuration),
        environment=variables(configuration),
        **trial,
    )
