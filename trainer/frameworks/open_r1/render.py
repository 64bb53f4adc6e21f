"""A configuration in Open-R1's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.deepspeed import deepspeed_config
from trainer.frameworks.common.trainer_keys import LEARNING
from trainer.frameworks.common.trial_arguments import TrialArguments, following
from trainer.frameworks.common.variables import variables
from trainer.frameworks.open_r1.key_handling import for_trial
from trainer.frameworks.open_r1.keys import acting, to_keys

OBJECTIVE: Mapping[str, Any] = {
    "loss_type": "bnpo",
    "beta": 0.04,
    "scale_rewards": True,
    "mask_truncated_completions": False,
    **LEARNING,
}
"""Of the objective, by ``GRPOConfig`` of TRL 0.18.0 and ``TrainingArguments`` of transformers 4.52.3, where a recipe
says nothing; exports write it explicitly. ``top_k`` is not among them: there it is ``None``, all tokens, which no
number says to both rollout engines."""
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
    steps = following(configuration, rows_per_update, world_size)
    if steps is not None:
        found["gradient_accumulation_steps"] = steps
    return found


def render(
    *,
    configuration: Mapping[str, KnobValue],
    passthrough: Mapping[str, Any],
    checkout: str,
    **trial: Unpack[TrialArguments],
) -> TrialSpec:
    """The spec of one trial.

    Args:
        checkout: folder of the user's Open-R1.

    Raises:
        ValueError: a knob or value Open-R1 cannot be given, or no checkout is named.
    """
    if not checkout:
        raise ValueError("an Open-R1 trial needs a checkout of Open-R1, whose grpo.py it runs")
    rows, ranks = trial["rows_per_update"], trial.get("world_size", 1)
    chosen = settings(configuration, rows, ranks, passthrough=passthrough)
    if sharding := deepspeed_config(acting(configuration), trial.get("device", "cpu")):
        chosen["deepspeed"] = sharding
    return TrialSpec(
        framework="open_r1",
        settings=chosen,
        model_settings={},
        seams={},
        passthrough={**OBJECTIVE, **for_trial(passthrough)},
        environment={**variables(configuration), CHECKOUT: checkout},
        **trial,
    )
