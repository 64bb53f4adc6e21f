"""What ms-swift 4.6.0 refuses in arguments that are no knobs, by the numbers ``swift_rules`` has them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.batch import Batch, batch_of
from search_spaces.configuration import KnobValue, Resources

Settings = Mapping[str, Any]
GONE: Mapping[str, str] = {
    "num_infer_workers": "it was removed in 3.6; `swift rollout --vllm_data_parallel_size N` serves N replicas",
    "train_type": "since 4.0 it is tuner_type",
}
"""Arguments ms-swift once had -> what to do instead (S16)."""


def problems(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> list[tuple[str, str]]:
    """(Rule, sentence without its full stop) of everything that would be refused."""
    batch = batch_of(configuration, resources)
    liger = configuration.get("hub_kernels") is True
    judged = [(name, judge(settings)) for name, judge in _RULES]
    judged += [("evaluation", _evaluation(settings, batch))]
    judged += [("liger_loss", _liger(settings))] if liger else []
    judged += [("unknown_key", f"ms-swift has no {key}; {why}") for key, why in GONE.items() if key in settings]
    return [(name, sentence) for name, sentence in judged if sentence is not None]


def _evaluation(settings: Settings, batch: Batch) -> str | None:
    """S5."""
    if settings.get("eval_strategy") in (None, "no"):
        return None
    rows, group = settings.get("per_device_eval_batch_size", 1), settings.get("num_generations_eval") or batch.group
    if not isinstance(rows, int) or not isinstance(group, int) or group < 1 or (rows * batch.ranks) % group == 0:
        return None
    product = f"per_device_eval_batch_size {rows} × {batch.ranks} = {rows * batch.ranks}"
    return f"{product} is not divisible by the {group} generations of evaluation"


def _liger(settings: Settings) -> str | None:
    """S10."""
    for key, resting in _LIGER_RESTING.items():
        value = settings.get(key)
        if value not in (None, resting):
            return f"hub_kernels cannot be used with {key} {str(value).lower() if value is True else value} in ms-swift"
    level = settings.get("importance_sampling_level")
    if level not in (None, "token", "sequence"):
        return f"hub_kernels cannot be used with importance_sampling_level {level} in ms-swift"
    return None


def _cached(settings: Settings) -> str | None:
    """S17."""
    keys = [key for key in ("cached_dataset", "cached_val_dataset") if settings.get(key)]
    return f"{keys[0]} cannot be used for GRPO" if keys else None


def _truncation(settings: Settings) -> str | None:
    strategy = settings.get("truncation_strategy")
    if strategy in (None, "left", "delete"):
        return None
    return f"truncation_strategy {strategy} cannot be used for GRPO; use left or delete"


def _warmup(settings: Settings) -> str | None:
    if settings.get("warmup_ratio") and settings.get("warmup_steps"):
        return "warmup_ratio and warmup_steps cannot both be set; remove one of them"
    return None


_LIGER_RESTING: Mapping[str, object] = {
    "delta": None,
    "top_entropy_quantile": 1.0,
    "log_entropy": False,
    "off_policy_sequence_mask_delta": None,
    "advantage_estimator": "grpo",
}
_RULES: tuple[tuple[str, Callable[[Settings], str | None]], ...] = (
    ("cached_dataset", _cached),
    ("truncation", _truncation),
    ("warmup", _warmup),
)
