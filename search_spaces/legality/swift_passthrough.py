"""Rules of ms-swift 4.6.0 about arguments that are no knobs, with the numbers of ``swift_rules``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.batch import Batch, batch_of
from search_spaces.configuration import KnobValue, Resources

Settings = Mapping[str, Any]
_LMDEPLOY = "LMDeploy was removed in 3.5; remove the argument (use_vllm true generates with vLLM)"
_MEGATRON = "it belongs to Megatron-SWIFT, which is `megatron rlhf`; remove it, or give such a run"
GONE: Mapping[str, str] = {
    **dict.fromkeys(
        ("colocate_groups", "rollout", "train"), "it is of a run by ms-swift's Ray trainer, and no trial runs so"
    ),
    "num_infer_workers": "it was removed in 3.6; `swift rollout --vllm_data_parallel_size N` serves N replicas",
    "vllm_device": "it was removed in 3.6; vllm_mode colocate generates on the GPUs that train",
    **dict.fromkeys(("ckpt_dir", "model_id_or_path"), "a checkpoint is given as model"),
    "max_prompt_length": "prompts are cut at max_length",
    **dict.fromkeys(("train_type", "sft_type"), "since 4.0 it is tuner_type"),
    **dict.fromkeys(("use_lmdeploy", "lmdeploy_device", "lmdeploy_session_len"), _LMDEPLOY),
    "lmdeploy_cache_max_entry_count": _LMDEPLOY,
}
"""Removed ms-swift argument -> replacement (S16)."""
OF_MEGATRON: Mapping[str, str] = {
    **dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"), _MEGATRON),
    **dict.fromkeys(("expert_model_parallel_size", "micro_batch_size", "global_batch_size", "train_iters"), _MEGATRON),
}
"""Arguments that ``swift rlhf`` does not have and ``megatron rlhf`` does -> the same."""


def problems(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> list[tuple[str, str]]:
    """Returns (rule, sentence without its full stop) of every setting that ms-swift would refuse."""
    batch = batch_of(configuration, resources)
    if configuration.get("training_engine") == "megatron":
        return [
            ("megatron_settings", said) for said in _of_megatron(settings, configuration, batch) if said is not None
        ]
    liger = configuration.get("hub_kernels") is True
    judged = [(name, judge(settings)) for name, judge in _RULES]
    judged += [("evaluation", _evaluation(settings, batch))]
    judged += [("liger_loss", _liger(settings))] if liger else []
    judged += [("adapter_sync", _adapters(settings))] if configuration.get("adapter_sync") is True else []
    gone = {**GONE, **OF_MEGATRON}
    judged += [("unknown_key", f"ms-swift has no {key}; {why}") for key, why in gone.items() if key in settings]
    return [(name, sentence) for name, sentence in judged if sentence is not None]


def _of_megatron(settings: Settings, configuration: Mapping[str, KnobValue], batch: Batch) -> tuple[str | None, ...]:
    """Checks keys of Megatron-SWIFT: ``arguments/megatron_args.py`` 403, 852, 949, ``trainers/grpo_trainer.py`` 639."""
    parts, beta = configuration.get("virtual_pipeline_size", 1), settings.get("beta", 0.04)
    tensor, group = configuration.get("training_tensor_parallel_size", 1), max(1, batch.group)
    tokens = configuration.get("megatron_sequence_parallel") is True and tensor != 1
    packed = configuration.get("remove_padding", True) is True
    judged = (
        (
            settings.get("loss_type") == "real" and batch.micro % group > 0,
            f"loss_type real needs whole groups in a micro-batch, and {batch.micro} is no multiple of "
            f"num_generations {group}",
        ),
        (
            parts != 1 and bool(beta),
            f"virtual_pipeline_model_parallel_size {parts} cannot be used with beta {beta} in Megatron-SWIFT, whose "
            "reference model has stages of one part",
        ),
        (
            bool(settings.get("tp_comm_overlap")) and not tokens,
            "tp_comm_overlap true needs sequence_parallel true and tensor_model_parallel_size above 1",
        ),
        (
            bool(settings.get("group_by_length")) and packed,
            "group_by_length true cannot be used with padding_free true in Megatron-SWIFT",
        ),
    )
    adapters = _adapters({"tuner_type": "full", **settings}) if configuration.get("adapter_sync") is True else None
    return (_truncation(settings), adapters, *(said for broken, said in judged if broken))


def _evaluation(settings: Settings, batch: Batch) -> str | None:
    """Checks that evaluation holds whole groups (S5; ms-swift 4.6, ``rlhf_trainers/args_mixin.py:232``)."""
    if not _evaluates(settings):
        return None
    rows, group = settings.get("per_device_eval_batch_size", 1), settings.get("num_generations_eval") or batch.group
    if not isinstance(rows, int) or not isinstance(group, int) or group < 1 or (rows * batch.ranks) % group == 0:
        return None
    product = f"per_device_eval_batch_size {rows} × {batch.ranks} = {rows * batch.ranks}"
    return f"{product} is not divisible by the {group} generations of evaluation"


def _evaluates(settings: Settings) -> bool:
    """Tells whether ms-swift evaluates: ``eval_strategy`` follows ``save_strategy`` (``arguments/sft_args.py:402``),
    and needs evaluation data (``sft_args.py:231``, ``base_args/data_args.py:124``).
    """
    strategy = settings.get("eval_strategy") or settings.get("save_strategy") or "steps"
    data = any(settings.get(key) for key in ("val_dataset", "cached_val_dataset", "eval_dataset"))
    return strategy != "no" and (data or (settings.get("split_dataset_ratio") or 0) > 0)


def _liger(settings: Settings) -> str | None:
    """Refuses settings that Liger's loss does not support (S10)."""
    for key, resting in _LIGER_RESTING.items():
        value = settings.get(key)
        if value not in (None, resting):
            return f"hub_kernels cannot be used with {key} {str(value).lower() if value is True else value} in ms-swift"
    level = settings.get("importance_sampling_level")
    if level not in (None, "token", "sequence"):
        return f"hub_kernels cannot be used with importance_sampling_level {level} in ms-swift"
    return None


def _adapters(settings: Settings) -> str | None:
    tuner = settings.get("tuner_type", "lora")
    return (
        None if tuner == "lora" else f"adapter_sync needs tuner_type lora, and this run has {tuner}: it has no adapters"
    )


def _cached(settings: Settings) -> str | None:
    """Refuses cached datasets (S17)."""
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


def _loss(settings: Settings) -> str | None:
    loss = settings.get("loss_type")
    return None if loss in (None, *_LOSSES) else f"loss_type {loss} is none of {', '.join(_LOSSES)}"


_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "real", "fipo")
"""Values that ms-swift compares only in the middle of a step (``grpo_trainer.py`` 1050 to 1145)."""
_RULES: tuple[tuple[str, Callable[[Settings], str | None]], ...] = (
    ("cached_dataset", _cached),
    ("truncation", _truncation),
    ("warmup", _warmup),
    ("loss", _loss),
)
