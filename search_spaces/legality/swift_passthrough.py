"""Rules of ms-swift 4.6.0 about arguments that are not knobs, with the numbers of ``swift_rules``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.batch import Batch, batch_of
from search_spaces.configuration import KnobValue, Resources
from search_spaces.legality.openr1_rules import rules_broken

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
"""Removed ms-swift argument -> sentence on its replacement (S16)."""
OF_MEGATRON: Mapping[str, str] = {
    **dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"), _MEGATRON),
    **dict.fromkeys(("expert_model_parallel_size", "micro_batch_size", "global_batch_size", "train_iters"), _MEGATRON),
}
"""Argument that only ``megatron rlhf`` has -> sentence for the user."""


_LIGER_RESTING: Mapping[str, object] = {
    "delta": None,
    "top_entropy_quantile": 1.0,
    "log_entropy": False,
    "off_policy_sequence_mask_delta": None,
    "advantage_estimator": "grpo",
}
"""Key that Liger's loss does not support -> its neutral value, with which the loss may be used (S10)."""
_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "real", "fipo")
"""Allowed ``loss_type``, which ms-swift checks in the middle of a step (``grpo_trainer.py`` 1050 to 1145)."""


def problems(settings: Settings, configuration: Mapping[str, KnobValue], resources: Resources) -> list[tuple[str, str]]:
    """Returns (rule, sentence without its full stop) of every setting that ms-swift would refuse."""
    get, batch = settings.get, batch_of(configuration, resources)
    adapted, strategy = configuration.get("adapter_sync") is True, get("truncation_strategy")
    cut = strategy not in (None, "left", "delete") and (
        f"truncation_strategy {strategy} cannot be used for GRPO; use left or delete"
    )
    if configuration.get("training_engine") == "megatron":
        adapters = adapted and _adapters({"tuner_type": "full", **settings})
        judged = (cut, adapters, *_of_megatron(settings, configuration, batch))
        return [("megatron_settings", each) for each in judged if isinstance(each, str)]
    cached, loss = [key for key in ("cached_dataset", "cached_val_dataset") if get(key)], get("loss_type")
    found = rules_broken(
        cached_dataset=cached and f"{cached[0]} cannot be used for GRPO",  # S17
        truncation=cut,
        warmup=get("warmup_ratio")
        and get("warmup_steps")
        and "warmup_ratio and warmup_steps cannot both be set; remove one of them",
        loss=loss not in (None, *_LOSSES) and f"loss_type {loss} is none of {', '.join(_LOSSES)}",
        evaluation=_evaluates(settings) and uneven_evaluation(settings, batch, get("per_device_eval_batch_size", 1)),
        liger_loss=configuration.get("hub_kernels") is True and _liger(settings),
        adapter_sync=adapted and _adapters(settings),
    )
    gone = {**GONE, **OF_MEGATRON}
    return found + [("unknown_key", f"ms-swift has no {key}; {why}") for key, why in gone.items() if key in settings]


def uneven_evaluation(settings: Settings, batch: Batch, rows: object) -> str | None:
    """Requires whole groups in an evaluation batch of ``rows`` per rank (S5; ``rlhf_trainers/args_mixin.py:232``)."""
    group = settings.get("num_generations_eval") or batch.group
    if not isinstance(rows, int) or not isinstance(group, int) or group < 1 or (rows * batch.ranks) % group == 0:
        return None
    product = f"per_device_eval_batch_size {rows} × {batch.ranks} = {rows * batch.ranks}"
    return f"{product} is not divisible by the {group} generations of evaluation"


def _of_megatron(settings: Settings, configuration: Mapping[str, KnobValue], batch: Batch) -> tuple[str | bool, ...]:
    """Checks keys of Megatron-SWIFT: ``arguments/megatron_args.py`` 403, 852, 949, ``trainers/grpo_trainer.py`` 639."""
    parts, beta = configuration.get("virtual_pipeline_size", 1), settings.get("beta", 0.04)
    tensor, group = configuration.get("training_tensor_parallel_size", 1), max(1, batch.group)
    tokens = configuration.get("megatron_sequence_parallel") is True and tensor != 1
    packed = configuration.get("remove_padding", True) is True
    return (
        (settings.get("loss_type") == "real" and batch.micro % group > 0)
        and f"loss_type real needs whole groups in a micro-batch, and {batch.micro} is no multiple of "
        f"num_generations {group}",
        (parts != 1 and bool(beta))
        and f"virtual_pipeline_model_parallel_size {parts} cannot be used with beta {beta} in Megatron-SWIFT, whose "
        "reference model has stages of one part",
        (bool(settings.get("tp_comm_overlap")) and not tokens)
        and "tp_comm_overlap true needs sequence_parallel true and tensor_model_parallel_size above 1",
        (bool(settings.get("group_by_length")) and packed)
        and "group_by_length true cannot be used with padding_free true in Megatron-SWIFT",
    )


def _evaluates(settings: Settings) -> bool:
    """Tells whether ms-swift evaluates: ``eval_strategy`` follows ``save_strategy`` (``arguments/sft_args.py:402``),
    and needs evaluation data (``sft_args.py:231``, ``base_args/data_args.py:124``).
    """
    strategy = settings.get("eval_strategy") or settings.get("save_strategy") or "steps"
    data = any(settings.get(key) for key in ("val_dataset", "cached_val_dataset", "eval_dataset"))
    return strategy != "no" and (data or (settings.get("split_dataset_ratio") or 0) > 0)


def _liger(settings: Settings) -> str | None:
    for key, resting in _LIGER_RESTING.items():
        value = settings.get(key)
        if value not in (None, resting):
            return f"hub_kernels cannot be used with {key} {str(value).lower() if value is True else value} in ms-swift"
    level = settings.get("importance_sampling_level")
    if level not in (None, "token", "sequence"):
        return f"hub_kernels cannot be used with importance_sampling_level {level} in ms-swift"
    return None


def _adapters(settings: Settings) -> str | bool:
    tuner = settings.get("tuner_type", "lora")
    return tuner != "lora" and f"adapter_sync needs tuner_type lora, and this run has {tuner}: it has no adapters"
