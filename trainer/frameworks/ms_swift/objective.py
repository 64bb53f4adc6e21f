"""Settings of the objective, all written explicitly, so that another version's defaults change nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.common.trainer_keys import LEARNING

ADVANTAGES = {"grpo": ("group", False), "rloo": ("none", True), "reinforce_plus_plus": ("batch", True)}
"""``advantage_estimator`` -> defaults of (``scale_rewards``, ``kl_in_reward``)."""

OBJECTIVE: Mapping[str, Any] = {
    "tuner_type": "full",
    "loss_type": "dapo",
    "beta": 0.0,
    "importance_sampling_level": "token",
    "advantage_estimator": "grpo",
    "scale_rewards": "group",
    "kl_in_reward": False,
    "overlong_filter": False,
    "top_k": -1,
    "min_p": 0.0,
    **LEARNING,
    "truncation_strategy": "left",
}
"""Objective of a run without a user's configuration: TRL 1.16's values, so that a workload is the same in both
frameworks. Only the temperature, a knob, keeps ms-swift's default (0.9)."""

_DERIVED: Mapping[str, Any] = {"beta": 0.04, "loss_type": "grpo", "truncation_strategy": "left"}
"""Defaults that ms-swift derives and its fields do not show (swift/arguments/rlhf_args.py, _init_grpo)."""


_MEGATRON: Mapping[str, str] = {
    "learning_rate": "lr",
    "lr_scheduler_type": "lr_decay_style",
    "warmup_ratio": "lr_warmup_fraction",
    "adam_epsilon": "adam_eps",
    "max_grad_norm": "clip_grad",
}
"""Argument -> its name in ``megatron rlhf``, which has no ``min_p``."""


def in_megatrons_words(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Renames ``arguments`` of ``swift rlhf`` to Megatron-SWIFT's."""
    return {_MEGATRON.get(key, key): value for key, value in arguments.items() if key != "min_p"}


def completed(own: Mapping[str, Any], fields: Mapping[str, Any], *, megatron: bool = False) -> dict[str, Any]:
    """Returns a user's arguments with ms-swift's defaults of the objective written out.

    Args:
        fields: the installed ms-swift's (``fields_of``), for its defaults.
        megatron: whether the arguments are Megatron-SWIFT's.
    """
    found = dict(own)
    scaled, in_reward = ADVANTAGES.get(own.get("advantage_estimator") or "grpo", ADVANTAGES["grpo"])
    full = own.get("tuner_type", "full" if megatron else "lora") == "full"
    derived = {**_DERIVED, "scale_rewards": scaled, "kl_in_reward": in_reward, "learning_rate": 1e-5 if full else 1e-4}
    derived = in_megatrons_words(derived) if megatron else derived
    for key in in_megatrons_words(OBJECTIVE) if megatron else OBJECTIVE:
        default = derived.get(key, getattr(fields.get(key), "default", None))
        if found.get(key) is None and default is not None and not (key == "warmup_ratio" and own.get("warmup_steps")):
            found[key] = default
    return found
