"""A configuration in Open-R1's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.deepspeed import deepspeed_config
from trainer.frameworks.common.trainer_keys import DTYPES, LEARNING, refuse
from trainer.frameworks.common.trial_arguments import TrialArguments, following
from trainer.frameworks.common.values import variables
from trainer.frameworks.open_r1.keys import CHECKPOINTING, NATIVE, acting, for_trial, unsupported, wants_server
from trainer.frameworks.trl.keys import in_keys

OBJECTIVE: Mapping[str, Any] = {
    "loss_type": "bnpo",
    "beta": 0.04,
    "scale_rewards": True,
    "mask_truncated_completions": False,
    **LEARNING,
}
"""Defaults of the objective (``GRPOConfig`` of TRL 0.18.0, ``TrainingArguments`` of transformers 4.52.3), which exports
write explicitly. ``top_k`` is not included: its default ``None`` means all tokens, and no number means that to both
rollout engines."""
CHECKOUT = "AUTOTUNE_OPENR1"
"""Variable a trial finds the user's checkout of Open-R1 by."""


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    passthrough: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns recipe keys of ``configuration``; knobs without an effect are ignored.

    DeepSpeed's are in the accelerate file, the server's on its own command. An accumulation that is not set follows
    from the micro-batch, so that an update keeps its rows.

    Args:
        passthrough: the user's own keys, whose mappings are merged with the knobs.

    Raises:
        ValueError: a knob or value that Open-R1 cannot take (``keys.unsupported``).
    """
    refuse(unsupported(configuration))
    acts = acting(configuration)
    left_out = {"gpu_memory_utilization", "tensor_parallel_size"} if wants_server(configuration) else set()
    found = in_keys(acts, {knob: key for knob, key in NATIVE.items() if knob not in left_out})
    if "master_weights" in acts:
        found["torch_dtype"] = DTYPES[str(acts["master_weights"])]
    if "checkpointing_reentrant" in acts:
        key, inner = CHECKPOINTING
        own = (passthrough or {}).get(key)
        found[key] = {**(own if isinstance(own, Mapping) else {}), inner: acts["checkpointing_reentrant"]}
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
    """Builds the spec of one trial.

    Raises ValueError for a knob or value that Open-R1 cannot take, or without ``checkout``, the user's Open-R1 folder.
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
