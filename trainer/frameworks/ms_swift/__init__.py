"""Parent side of ms-swift: reads, renders and exports configurations, and diagnoses failed trials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trainer.child.contract import SIGNS, Phase, Sign, StartupPart, illegal
from trainer.frameworks.common import failures as shared
from trainer.frameworks.ms_swift.export import export
from trainer.frameworks.ms_swift.keys import NATIVE, SUPPORTED
from trainer.frameworks.ms_swift.render import render, settings, unsupported

_ENGINE = StartupPart.ENGINE.value


OWN_SIGNS: tuple[Sign, ...] = (
    illegal("swift_evaluation", "The global eval batch size (…) must be evenly divisible by num_generations_eval"),
    illegal(
        "swift_groups",
        "generation_batch_size (…) must be divisible by the global batch size",
        "must equal per_device_train_batch_size * world_size * steps_per_generation",
        "must be evenly divisible by num_generations",
        "steps_per_generation must be > 0",
    ),
    illegal("swift_one_generation", "num_generations must be greater than 1 for GRPO"),
    illegal(
        "swift_mode",
        "vllm_mode is required when use_vllm is true",
        "vllm_mode is not supported when use_vllm is false",
    ),
    illegal("swift_async", "async generate require vllm_mode == server"),
    illegal(
        "swift_processes",
        "GRPO with vLLM is not compatible with `device_map`",
        "DeepSpeed is not compatible with `device_map`",
        "FSDP2 is not compatible with `device_map`",
        "liger_kernel does not support device_map",
    ),
    illegal("swift_liger", "Liger loss does not support", "Liger loss currently only support"),
    illegal("swift_liger_version", "Please update liger-kernel to 0.7.0 or later", "requires liger_kernels"),
    illegal("tensor_parallel", "vllm_tensor_parallel_size (…) must divide world size", phase=_ENGINE),
    illegal(
        "swift_server_gpus",
        "local_device_count (…) must be greater than or equal to the product of vllm_data_parallel_size",
        phase=StartupPart.SERVER.value,
    ),
    illegal("swift_flash", "feature requires a flash attention implementation"),
    illegal("swift_fsdp1", "FSDP1 is not supported. Please use FSDP2"),
    illegal("swift_fsdp_zero", "FSDP2 is not compatible with DeepSpeed"),
    illegal("swift_overlong", "The soft_cache_length must be set when using soft overlong rewards"),
    illegal("long_prompt", "leaves no room for generation with max_model_len", phase=Phase.GENERATE.value),
    illegal("swift_argument", "remaining_argv: ["),
    illegal("swift_cached", "cached_dataset is not supported for GRPO"),
    illegal("swift_truncation", "GRPO requires `truncation_strategy 'left' or 'delete'`"),
    illegal("swift_rewards", "You must specify reward_funcs or reward_model", "is not implemented in swift.rewards"),
    illegal("swift_model_type", "Failed to automatically match `model_type`"),
    illegal("swift_torchvision", "operator torchvision::nms does not exist"),
    illegal("swift_msgspec", "No module named 'msgspec'"),
)
"""ms-swift's own texts, tried before the shared ones, which contain some of them."""
ALL: tuple[Sign, ...] = (*OWN_SIGNS, *SIGNS)

SUGGESTIONS: Mapping[str, str] = {
    **shared.SUGGESTIONS,
    "swift_groups": shared.SUGGESTIONS["groups"],
    "swift_evaluation": "set per_device_eval_batch_size to a multiple of num_generations_eval, or eval_strategy no",
    "swift_one_generation": shared.SUGGESTIONS["one_generation"],
    "swift_mode": "give vllm_mode with use_vllm true, and leave it out without",
    "swift_async": "set rollout_mode server, or async_generation false",
    "swift_processes": "set NPROC_PER_NODE to the number of GPUs, or let the process see one GPU only",
    "swift_liger": "set hub_kernels false",
    "swift_liger_version": "install liger-kernel 0.7.0 or later in the training environment, or set hub_kernels false",
    "swift_server_gpus": "lower rollout_data_parallel_size or tensor_parallel_size, or raise rollout_gpus",
    "swift_flash": "set remove_padding false, or attn_implementation flash_attention_2",
    "swift_fsdp1": "set fsdp fsdp2",
    "swift_fsdp_zero": "set zero_stage 0, or fsdp none",
    "swift_overlong": "give soft_cache_length",
    "swift_argument": "remove the argument: this ms-swift does not know it",
    "swift_cached": "give the prompts by dataset",
    "swift_truncation": "set truncation_strategy left or delete",
    "swift_rewards": "name a reward that ms-swift or the plugin has",
    "swift_model_type": "give model_type, because several kinds of models have this architecture",
    "swift_torchvision": "uninstall torchvision in the training environment, or install the build of its torch",
    "swift_msgspec": "install msgspec in the training environment: ms-swift 4.6 imports it and does not ask for it",
}
"""Name of a sign -> suggestion; a missing one depends on the phase (``suggest``)."""

FEWER_LOGPROB_ROWS = "lower logprob_rows or micro_batch_size: ms-swift computes whole logits"


diagnose = partial(shared.diagnose, signs=ALL, suggestions=SUGGESTIONS)
suggest = partial(shared.suggest, by_phase={**shared.BY_PHASE, Phase.LOGPROB.value: FEWER_LOGPROB_ROWS})
