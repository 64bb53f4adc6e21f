"""Converts a configuration to verl's keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.values import TrialArguments, sizes
from trainer.frameworks.verl import key_handling as handling
from trainer.frameworks.verl.key_tables import ACTOR, FSDP, ROLLOUT
from trainer.frameworks.verl.keys import to_keys, unsupported
from trainer.frameworks.verl.ray import PRIVATE, cpus, variables

OBJECTIVE: Mapping[str, Any] = {
    ACTOR + "optim.lr": 1e-6,
    ACTOR + "optim.weight_decay": 0.01,
    ACTOR + "grad_clip": 1.0,
    ACTOR + "ppo_epochs": 1,
    ACTOR + "clip_ratio": 0.2,
    ACTOR + "loss_agg_mode": "token-mean",
    ACTOR + "use_kl_loss": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.norm_adv_by_std_in_grpo": True,
    ROLLOUT + "top_p": 1.0,
    ROLLOUT + "top_k": -1,
}
"""Objective in verl's own files (``trainer/config``), used for keys that a run does not set; exports write it
explicitly. ``clip_ratio_low``, ``clip_ratio_high`` and ``clip_ratio_c`` are left to verl."""


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cuda",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns verl's keys for ``configuration``, as TRL's ``settings``; knobs without an effect have verl's default.

    ``device`` must be ``cuda``: verl 0.9.1 does not train on a CPU. ``passthrough`` contains no knobs.
    """
    del passthrough
    if device != "cuda":
        raise ValueError("verl trains on GPUs only, and this is a CPU run")
    return to_keys(configuration, rows_per_update, world_size, longest)


def workload(
    *,
    model: str,
    max_prompt_length: int | None,
    max_completion_length: int,
    world_size: int,
    seed: int,
    nodes: int = 1,
) -> dict[str, Any]:
    """Returns verl's keys that are not tuned: model, lengths, GPUs and every seed."""
    lengths = {} if max_prompt_length is None else {handling.PROMPT_LENGTH: max_prompt_length}
    seeds = ("data.seed", ACTOR + "data_loader_seed", FSDP + "seed", ROLLOUT + "seed")
    return {
        handling.MODEL_PATH: model,
        **lengths,
        handling.COMPLETION_LENGTH: max_completion_length,
        handling.GPUS: world_size // nodes,
        handling.NODES: nodes,
        **dict.fromkeys(seeds, seed),
    }


def render(
    *,
    configuration: Mapping[str, KnobValue],
    passthrough: Mapping[str, Any],
    cores: int = 0,
    **trial: Unpack[TrialArguments],
) -> TrialSpec:
    """Builds the spec of one trial: its ``settings`` are verl's overrides by dotted key.

    The spec has one process for any number of GPUs, because verl starts its workers itself. ``cores`` of the machine
    determine Ray's number of CPUs (``ray.cpus``); 0 leaves the number to Ray.

    Raises ValueError for a knob, value or device that verl cannot take.
    """
    refuse(unsupported(configuration))
    trial.setdefault("device", "cuda")
    ranks = trial.get("world_size", 1)
    tuned = settings(configuration, **sizes(trial))
    fixed = workload(
        model=trial["model"],
        max_prompt_length=trial["max_prompt_length"],
        max_completion_length=trial["max_completion_length"],
        world_size=ranks,
        seed=trial.get("seed", 0),
    )
    spec = TrialSpec(
        framework="verl",
        settings={**tuned, **fixed, **PRIVATE, **cpus(passthrough, ranks, cores)},
        model_settings={},
        seams={},
        passthrough={**OBJECTIVE, **handling.for_trial(passthrough)},
        environment=variables(configuration),
        **trial,
    )
    return replace(spec, world_size=1)
