"""Rules for keys of the user's configuration that are not knobs, checked before a trial starts.

The framework reports the same problems late, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.batch import batch_of
from search_spaces.configuration import KnobValue, Resources
from search_spaces.legality import openr1_rules, swift_passthrough
from search_spaces.legality.case import Violation
from search_spaces.legality.openr1_rules import rules_broken
from search_spaces.own_keys import is_lora

Settings = Mapping[str, Any]
Said = list[tuple[str, str]]
"""Pairs of rule and sentence, without the full stop."""
REMOVED = {
    "max_prompt_length": "filter the prompts by length instead",
    "use_liger_loss": "the loss is always computed in tiles",
    "torch_dtype": "use dtype",
    "overwrite_output_dir": "each trial has a folder of its own",
}
"""Removed TRL key -> replacement."""


_CHOICES: Mapping[str, tuple[str | bool, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "luspo", "sapo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
"""Allowed values of keys that TRL checks only in the middle of a step (1.16, trl/trainer/grpo_trainer.py, lines 2706,
2782, 3091 and 3109 to 3138)."""


def check_passthrough(
    settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources
) -> tuple[Violation, ...]:
    """Returns the violations of ``settings`` that the framework would refuse together with ``configuration``."""
    judge = _JUDGES.get(resources.framework)
    found = () if judge is None else judge(settings, configuration, resources)
    return tuple(Violation(name, f"{sentence}.") for name, sentence in found)


def _of_openr1(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    return openr1_rules.broken_settings(settings, batch_of(configuration, resources))


def _of_trl(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    get, targets, rank = settings.get, settings.get("lora_target_modules"), settings.get("lora_r")
    parallel, batch = get("parallelism_config"), batch_of(configuration, resources)
    parallel = parallel if isinstance(parallel, Mapping) else {}
    split = [key for key in ("cp_size", "sp_size") if isinstance(parallel.get(key), int) and parallel[key] > 1]
    found = rules_broken(
        generation_size=openr1_rules.generation_size(settings),
        auto_find_batch_size=get("auto_find_batch_size")
        and "auto_find_batch_size would change the batch in the middle of a trial; GRPO refuses it, so set it to false",
        sequence_split=split and f"GRPO cannot split sequences over ranks; set parallelism_config {split[0]} to 1",
        importance_sampling=_correction(settings),
        reference_model=get("sync_ref_model") and _reference_model(settings),
        adapter_target="lm_head" in (targets if isinstance(targets, list | tuple) else [targets])
        and "PEFT may not adapt lm_head, because log-probs use its weights directly; remove it from "
        "lora_target_modules",
        adapter_rank=rank is not None
        and (not isinstance(rank, int) or isinstance(rank, bool) or rank <= 0)
        and f"lora_r {rank!r} must be a whole number above 0",
        unknown_word=_choice(settings),
        evaluation=get("eval_strategy") not in (None, "no")
        and swift_passthrough.uneven_evaluation(settings, batch, get("per_device_eval_batch_size", 8)),
    )
    return found + [("unknown_key", f"TRL has no {key}; {why}") for key, why in REMOVED.items() if key in settings]


def _of_verl(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> Said:
    unread = configuration.get("rollout_load_format", "dummy") == "dummy"
    key = "actor_rollout_ref.rollout.calculate_log_probs"
    return rules_broken(
        # verl 0.9.1, ``collect_lora_params``: adapters are sent layer by layer into dummy weights.
        layered_sync=(unread and configuration.get("weight_sync_layered") is True)
        and is_lora(settings, resources.framework)
        and "weight_sync_layered true needs an engine that reads the weights at its start; set rollout_load_format to "
        "safetensors",
        # ``apply_bypass_mode`` of ``verl/trainer/ppo/rollout_corr_helper.py``
        verl_engine_logprobs=(configuration.get("engine_logprobs") is True and settings.get(key) is False)
        and f"engine_logprobs needs {key} true, for the engine's log-probs are the old ones",
    )


def _correction(settings: Settings) -> str | None:
    low, high = (settings.get(f"vllm_importance_sampling_clip_{end}", default) for end, default in _CLIPS)
    if low is not None and high is not None and low >= high:
        return f"vllm_importance_sampling_clip_min {low} must be less than vllm_importance_sampling_clip_max {high}"
    mode = str(settings.get("vllm_importance_sampling_mode") or "")
    if mode.endswith("_truncate") and low is None and high is None:
        return f"vllm_importance_sampling_mode {mode} needs a clip; set vllm_importance_sampling_clip_max"
    return None


def _reference_model(settings: Settings) -> str | bool:
    adapted = settings.get("use_peft") or settings.get("peft_config")
    lacking = not settings.get("beta") and "sync_ref_model needs a reference model, so beta above 0"
    return lacking or (bool(adapted) and "sync_ref_model cannot be used with PEFT")


def _choice(settings: Settings) -> str | None:
    for key, allowed in _CHOICES.items():
        value = settings.get(key)
        if value is not None and (not isinstance(value, str | bool) or value not in allowed):
            return f"{key} {value!r} is none of {', '.join(word for word in allowed if isinstance(word, str))}"
    return None


_CLIPS = (("min", None), ("max", 3.0))
_JUDGES: Mapping[str, Callable[[Settings, Mapping[str, KnobValue], Resources], Said]] = {
    "trl": _of_trl,
    openr1_rules.FRAMEWORK: _of_openr1,
    "verl": _of_verl,
    "ms_swift": swift_passthrough.problems,
}
"""Framework -> check of its settings; a framework without an entry is not checked."""
