"""Every key of the supported TRL has been thought of, and a trial is given what it must be given."""

from __future__ import annotations

from tests.support.trl_fields import FIELDS
from tests.support.trl_keys import handling_of
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.trl.key_handling import GONE, INPUTS, LAUNCH, MEASURING, REFUSED, for_trial
from trainer.frameworks.trl.keys import KEYS

WORKLOAD = """
    accelerator_config adam_beta1 adam_beta2 adam_epsilon average_tokens_across_devices beta
    bnb_4bit_quant_storage bnb_4bit_quant_type cache_implementation cast_lm_head_to_fp32 chat_template_kwargs
    data_seed dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context
    dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_backend
    ddp_broadcast_buffers ddp_find_unused_parameters ddp_static_graph ddp_timeout debug delta disable_dropout
    entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target epsilon epsilon_high
    fsdp_config full_determinism generation_kwargs gradient_checkpointing_kwargs importance_sampling_level
    include_num_input_tokens_seen label_names label_smoothing_factor learning_rate length_column_name
    liger_kernel_config load_in_4bit load_in_8bit local_rank logging_nan_inf_filter lora_alpha lora_dropout
    lora_modules_to_save lora_r lora_target_modules lora_target_parameters lora_task_type loss_type
    lr_scheduler_kwargs lr_scheduler_type mask_truncated_completions max_grad_norm max_tool_calling_iterations
    min_p model_init_kwargs model_revision multi_objective_aggregation neftune_noise_alpha num_iterations
    off_policy_mask_threshold optim_args optim_target_modules ref_model_mixup_alpha ref_model_sync_steps
    remove_unused_columns repetition_penalty reward_weights router_aux_loss_coef sapo_temperature_neg
    sapo_temperature_pos scale_rewards shuffle_dataset sync_ref_model top_entropy_quantile top_k top_p
    torch_compile_backend train_sampling_strategy transformers_continuous_batching_config
    trust_remote_code use_adaptive_entropy use_bias_correction_kl use_bnb_nested_quant use_cache use_dora
    use_liger_kernel use_peft use_rslora vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_model_impl vllm_server_timeout
    vllm_structured_outputs_regex warmup_steps weight_decay
"""


def test_a_new_key_of_trl_is_workload_only_after_somebody_said_so() -> None:
    """When TRL gains a key: decide in ``key_handling`` what becomes of it; if it is workload, add it here."""
    assert {name for name in FIELDS if handling_of(name) is KeyHandling.WORKLOAD} == set(WORKLOAD.split())


def test_the_table_names_keys_trl_has_each_with_one_fate() -> None:
    tables = [set(KEYS), INPUTS, MEASURING, set(REFUSED)]
    assert set().union(*tables) <= set(FIELDS)
    assert sum(len(table) for table in tables) == len(set().union(*tables))
    assert not (set(GONE) | set(LAUNCH)) & set(FIELDS)


def test_a_trial_is_given_the_workload_and_nothing_that_belongs_to_the_users_run() -> None:
    everything = dict.fromkeys([*FIELDS, "env"], None)
    assert set(for_trial({k: v for k, v in everything.items() if k not in KEYS and k not in INPUTS})) == {
        *WORKLOAD.split(),
        "env",
    }
