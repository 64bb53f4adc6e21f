"""Rules for keys of the user's configuration that are not knobs, checked before a trial starts.

The framework reports the same problems late, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from search_spaces.batch import Batch, batch_of
from search_spaces.configuration import KnobValue, Resources
from search_spaces.legality import openr1_rules, swift_passthrough
from search_spaces.legality.case import Violation
from search_spaces.own_keys import is_lora

Settings = Mapping[str, Any]
Said = Sequence[tuple[str, str]]
"""Pairs of rule and sentence, without the full stop."""
REMOVED = {
    "max_prompt_length": "filter the prompts by length instead",
    "use_liger_loss": "the loss is always computed in tiles",
    "torch_dtype": "use dtype",
    "overwrite_output_dir": "each trial has a folder of its own",
}
"""Removed TRL key -> replacement."""


def check_passthrough(
    settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources
) -> tuple[Violation, ...]:
    """Returns the problems of ``settings`` that the framework would refuse with ``configuration``."""
    judge = _JUDGES.get(resources.framework)
    said = () if judge is None else judge(settings, configuration, resources)
    return tuple(Violation(name, f"{sentence}.") for name, sentence in said)


def _of_openr1(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    return openr1_rules.broken_settings(settings, batch_of(configuration, resources))


def _of_trl(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    found = [(name, sentence) for name, judge in _RULES if (sentence := judge(settings)) is not None]
    evaluation = _evaluation(settings, batch_of(configuration, resources))
    found += [("evaluation", evaluation)] if evaluation else []
    found += [("unknown_key", f"TRL has no {key}; {why}") for key, why in REMOVED.items() if key in settings]
    return found


def _of_verl(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    judged = (_layered_sync(settings, configuration, resources), _engine_logprobs(settings, configuration))
    return [found for found in judged if found is not None]


def _layered_sync(
    settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources
) -> tuple[str, str] | None:
    """Refuses layered sync of adapters into dummy weights (verl 0.9.1, ``collect_lora_params``)."""
    unread = configuration.get("rollout_load_format", "dummy") == "dummy"
    if not (unread and configuration.get("weight_sync_layered") is True and is_lora(settings, resources.framework)):
        return None
    need = "needs an engine that reads the weights at its start"
    return "layered_sync", f"weight_sync_layered true {need}; set rollout_load_format to safetensors"


def _engine_logprobs(settings: Settings, configuration: Mapping[str, KnobValue]) -> tuple[str, str] | None:
    """Requires the engine's log-probs for ``apply_bypass_mode`` of ``verl/trainer/ppo/rollout_corr_helper.py``."""
    key = "actor_rollout_ref.rollout.calculate_log_probs"
    if configuration.get("engine_logprobs") is not True or settings.get(key) is not False:
        return None
    return "verl_engine_logprobs", f"engine_logprobs needs {key} true, for the engine's log-probs are the old ones"


def _auto_batch(settings: Settings) -> str | None:
    if not settings.get("auto_find_batch_size"):
        return None
    return "auto_find_batch_size would change the batch in the middle of a trial; GRPO refuses it, so set it to false"


def _sequence(settings: Settings) -> str | None:
    parallel = settings.get("parallelism_config")
    if not isinstance(parallel, Mapping):
        return None
    split = [key for key in ("cp_size", "sp_size") if isinstance(parallel.get(key), int) and parallel[key] > 1]
    return f"GRPO cannot split sequences over ranks; set parallelism_config {split[0]} to 1" if split else None


def _evaluation(settings: Settings, batch: Batch) -> str | None:
    if settings.get("eval_strategy") in (None, "no"):
        return None
    rows = settings.get("per_device_eval_batch_size", _HF_EVALUATION_ROWS)
    group = settings.get("num_generations_eval") or batch.group
    if not isinstance(rows, int) or not isinstance(group, int) or group < 1 or (rows * batch.ranks) % group == 0:
        return None
    product = f"per_device_eval_batch_size {rows} × {batch.ranks} = {rows * batch.ranks}"
    return f"{product} is not divisible by the {group} generations of evaluation"


def _correction(settings: Settings) -> str | None:
    low, high = (settings.get(f"vllm_importance_sampling_clip_{end}", default) for end, default in _CLIPS)
    if low is not None and high is not None and low >= high:
        return f"vllm_importance_sampling_clip_min {low} must be less than vllm_importance_sampling_clip_max {high}"
    mode = str(settings.get("vllm_importance_sampling_mode") or "")
    if mode.endswith("_truncate") and low is None and high is None:
        return f"vllm_importance_sampling_mode {mode} needs a clip; set vllm_importance_sampling_clip_max"
    return None


def _reference_model(settings: Settings) -> str | None:
    if not settings.get("sync_ref_model"):
        return None
    if not settings.get("beta"):
        return "sync_ref_model needs a reference model, so beta above 0"
    if settings.get("use_peft") or settings.get("peft_config"):
        return "sync_ref_model cannot be used with PEFT"
    return None


def _adapter(settings: Settings) -> str | None:
    targets = settings.get("lora_target_modules")
    names = targets if isinstance(targets, list | tuple) else [targets]
    if "lm_head" not in names:
        return None
    return "PEFT may not adapt lm_head, because log-probs use its weights directly; remove it from lora_target_modules"


def _choice(settings: Settings) -> str | None:
    for key, allowed in _CHOICES.items():
        value = settings.get(key)
        if value is not None and (not isinstance(value, str | bool) or value not in allowed):
            return f"{key} {value!r} is none of {', '.join(word for word in allowed if isinstance(word, str))}"
    return None


def _rank(settings: Settings) -> str | None:
    rank = settings.get("lora_r")
    if rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0):
        return None
    return f"lora_r {rank!r} must be a whole number above 0"


_CHOICES: Mapping[str, tuple[str | bool, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "luspo", "sapo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
"""Values of keys that TRL compares only in the middle of a step: trl/trainer/grpo_trainer.py of 1.16, lines 2706, 2782,
3091 and 3109 to 3138."""
_HF_EVALUATION_ROWS = 8
_CLIPS = (("min", None), ("max", 3.0))
_RULES: tuple[tuple[str, Callable[[Settings], str | None]], ...] = (
    ("generation_size", openr1_rules.generation_size),
    ("auto_find_batch_size", _auto_batch),
    ("sequence_split", _sequence),
    ("importance_sampling", _correction),
    ("reference_model", _reference_model),
    ("adapter_target", _adapter),
    ("adapter_rank", _rank),
    ("unknown_word", _choice),
)
_JUDGES: Mapping[str, Callable[[Settings, Mapping[str, KnobValue], Resources], Said]] = {
    "trl": _of_trl,
    openr1_rules.FRAMEWORK: _of_openr1,
    "verl": _of_verl,
    "ms_swift": swift_passthrough.problems,
}
"""Framework -> check of its settings; a framework without an entry is not checked."""
