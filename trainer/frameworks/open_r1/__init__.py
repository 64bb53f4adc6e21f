"""Parent side of Open-R1: reads, renders and exports configurations, and diagnoses failed trials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trainer.child.contract import SIGNS, Phase, Sign, illegal, infra
from trainer.frameworks.common import failures as shared
from trainer.frameworks.open_r1.export import export
from trainer.frameworks.open_r1.keys import NATIVE, SUPPORTED, render, settings, unsupported

SUGGESTIONS: Mapping[str, str] = {
    **shared.SUGGESTIONS,
    "sampler": "lower gpu_memory_utilization, or beside the training micro_batch_size or gradient_accumulation_steps, "
    "whose product TRL 0.18 lets decode together",
    "openr1_registry": "name only rewards of Open-R1's registry (src/open_r1/rewards.py), or give the study your own",
    "openr1_prompt_column": "set dataset_prompt_column to the column that holds the prompt's text",
    "openr1_dataset": "set dataset_name or dataset_mixture",
    "openr1_import": "name a checkout of Open-R1 with --openr1, and its own environment with --python",
    "openr1_server": "start server.sh first and wait until it answers; it must be of the same TRL",
    "openr1_accelerate_fields": "remove the keys beside deepspeed_config_file from the accelerate file",
    "openr1_callback": "remove it from callbacks; Open-R1 has push_to_hub_revision",
    "openr1_sandbox": "install the package of the sandbox that code_provider names, or choose another reward",
    "openr1_model_arguments": "remove model_init_kwargs; torch_dtype and attn_implementation are keys of their own",
    "openr1_liger_loss": "set fused_loss false, or remove delta",
    "openr1_no_liger": "set fused_loss false, or install liger-kernel in the training environment",
    "openr1_groups": shared.SUGGESTIONS["groups"],
}
"""Name of a sign -> suggestion."""


OWN_SIGNS: tuple[Sign, ...] = (
    illegal("openr1_import", "No module named 'open_r1'"),
    illegal("openr1_registry", "REWARD_FUNCS_REGISTRY[func] for func in script_args.reward_funcs"),
    illegal("openr1_prompt_column", "Dataset Question Field Error: … is not supported."),
    illegal("openr1_dataset", "Either `dataset_name` or `dataset_mixture` must be provided"),
    illegal("openr1_callback", "Callback … not found in CALLBACKS."),
    illegal("openr1_sandbox", "is not available and required for this provider"),
    illegal("openr1_model_arguments", "You passed `model_init_kwargs` to the `GRPOConfig`, but your model"),
    illegal("openr1_liger_loss", "Liger loss does not support two-sided GRPO loss yet."),
    illegal("openr1_no_liger", "Liger is required to use `liger_loss` as the GRPO loss."),
    illegal("openr1_groups", "must be evenly divisible by the number of generations per prompt ("),
    illegal(
        "openr1_accelerate_fields", "When using `deepspeed_config_file`, the following accelerate config variables"
    ),
    infra("openr1_server", "The vLLM server can't be reached at … after … seconds"),
)
"""Texts of Open-R1's own script, of TRL 0.18 and of accelerate 1.4, from their sources."""


diagnose = partial(shared.diagnose, signs=(*OWN_SIGNS, *SIGNS), suggestions=SUGGESTIONS)


suggest = partial(shared.suggest, by_phase={**shared.BY_PHASE, Phase.LOGPROB.value: shared.SMALLER_BATCH})
"""Suggestion by phase: TRL 0.18's log-prob pass has a micro-batch's rows, and no knob chunks it."""
