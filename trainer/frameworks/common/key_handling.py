"""How each key of a user's configuration is handled: as a knob, an input, unchanged, ignored in trials, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from search_spaces.configuration import KnobValue


class KeyHandling(StrEnum):
    """Handling of one key of a user's configuration."""

    KNOB = "knob"
    """A knob: the key's value is the baseline's, and the search may change it."""
    INPUT = "input"
    """Model, prompts, rewards and completion length, which are fields of the study's workload."""
    MEASURING = "measuring"
    """Ignored or replaced in trials, kept in exports; does not affect speed or memory."""
    WORKLOAD = "workload"
    """Passed to every trial unchanged, except knobs inside a mapping."""
    REFUSED = "refused"
    """Keys that trials cannot honour: a value with an effect is refused, any other is ignored."""


MEASURING = frozenset(
    {
        *("output_dir", "num_train_epochs", "max_steps", "do_train", "seed", "use_cpu"),
        *("logging_strategy", "logging_steps", "logging_first_step", "log_level", "log_completions"),
        *("disable_tqdm", "report_to", "run_name"),
        *("do_eval", "eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "per_device_eval_batch_size"),
        *("save_strategy", "save_steps", "save_total_limit", "save_only_model", "load_best_model_at_end"),
        *("push_to_hub", "hub_model_id", "hub_strategy", "hub_private_repo", "hub_always_push"),
    }
)
"""Keys of transformers' trainers and of TRL, of every version, on span, logging, evaluation and saving."""


def uncompiled(keys: Mapping[str, Any], configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns the user's ``keys``; without ``torch_compile_backend``, which turns compilation on, if it is off."""
    off = configuration.get("torch_compile") is False
    return {key: value for key, value in keys.items() if not (off and key == "torch_compile_backend")}


def without(passthrough: Mapping[str, Any], *left_out: Collection[str]) -> dict[str, Any]:
    """Returns ``passthrough`` without the keys in ``left_out``."""
    return {key: value for key, value in passthrough.items() if not any(key in keys for keys in left_out)}
