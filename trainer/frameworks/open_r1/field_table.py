"""The keys of Open-R1's ``grpo.py``: those of TRL 0.18.0, transformers 4.52.3 and its own ``configs.py``.

Open-R1 pins these versions, so its keys are known without asking an environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.common.fields import Field

_BY_TYPE: Mapping[str, str] = {
    "bool": """
        adafactor auto_find_batch_size batch_eval_metrics bf16 bf16_full_eval dataloader_drop_last
        dataloader_persistent_workers dataloader_pin_memory disable_dropout do_eval do_predict do_train
        ds3_gather_for_generation eval_do_concat_batches eval_on_start fp16 fp16_full_eval full_determinism
        gradient_checkpointing gradient_checkpointing_use_reentrant group_by_length hub_always_push
        ignore_bias_buffers ignore_data_skip include_inputs_for_metrics jit_mode_eval load_in_4bit load_in_8bit
        log_completions log_on_each_node logging_first_step logging_nan_inf_filter mask_truncated_completions
        no_cuda overwrite_hub_revision overwrite_output_dir prediction_loss_only push_to_hub push_to_hub_revision
        restore_callback_states_from_checkpoint save_on_each_node save_only_model scale_rewards skip_memory_metrics
        sync_ref_model torch_compile tpu_metrics_debug trust_remote_code use_bnb_nested_quant use_cpu use_dora
        use_ipex use_legacy_prediction_loop use_liger_loss use_mps_device use_peft use_rslora use_vllm
        wandb_log_unique_prompts
    """,
    "bool | none": """
        average_tokens_across_devices ddp_broadcast_buffers ddp_find_unused_parameters disable_tqdm
        eval_use_gather_object greater_is_better hub_private_repo include_num_input_tokens_seen
        include_tokens_per_second load_best_model_at_end remove_unused_columns save_safetensors shuffle_dataset tf32
        use_liger_kernel
    """,
    "dict | none": """
        dataset_mixture
    """,
    "dict | str | none": """
        accelerator_config deepspeed fsdp_config gradient_checkpointing_kwargs lr_scheduler_kwargs model_init_kwargs
    """,
    "float": """
        adam_beta1 adam_beta2 adam_epsilon beta cosine_max_value_correct cosine_max_value_wrong
        cosine_min_value_correct cosine_min_value_wrong epsilon label_smoothing_factor learning_rate logging_steps
        lora_dropout max_grad_norm num_train_epochs ref_model_mixup_alpha repetition_max_penalty repetition_penalty
        save_steps temperature top_p vllm_gpu_memory_utilization vllm_server_timeout warmup_ratio weight_decay
    """,
    "float | none": """
        delta epsilon_high eval_delay eval_steps min_p neftune_noise_alpha
    """,
    "int": """
        code_eval_test_batch_size cosine_max_len dataloader_num_workers fsdp_min_num_params
        gradient_accumulation_steps local_rank lora_alpha lora_r max_completion_len max_steps
        num_completions_to_print num_iterations parallel_code_exec_per_proc past_index per_device_eval_batch_size
        per_device_train_batch_size ref_model_sync_steps repetition_n_grams seed soft_punish_cache vllm_server_port
        vllm_tensor_parallel_size warmup_steps
    """,
    "int | none": """
        data_seed dataloader_prefetch_factor ddp_bucket_cap_mb ddp_timeout eval_accumulation_steps
        generation_batch_size max_completion_length max_prompt_length num_generations per_gpu_eval_batch_size
        per_gpu_train_batch_size save_total_limit steps_per_generation top_k torch_empty_cache_steps tpu_num_cores
    """,
    "list[float] | none": """
        reward_weights
    """,
    "list[str]": """
        benchmarks callbacks include_for_metrics reward_funcs
    """,
    "list[str] | none": """
        label_names lora_modules_to_save lora_target_modules
    """,
    "list[str] | str | none": """
        fsdp
    """,
    "none | str | list[str]": """
        optim_target_modules report_to
    """,
    "str": """
        bnb_4bit_quant_type code_eval_scoring_mode code_language dataset_prompt_column dataset_test_split
        dataset_train_split eval_strategy fp16_backend fp16_opt_level half_precision_backend hub_strategy
        logging_strategy lora_task_type loss_type lr_scheduler_type model_revision mp_parameters optim save_strategy
        vllm_mode vllm_server_host
    """,
    "str | none": """
        attn_implementation cache_implementation chat_template code_provider dataset_config dataset_name ddp_backend
        e2b_router_url fsdp_transformer_layer_cls_to_wrap hub_model_id hub_model_revision hub_token ioi_provider
        length_column_name log_level log_level_replica logging_dir metric_for_best_model model_name_or_path
        morph_router_url optim_args output_dir push_to_hub_model_id push_to_hub_organization push_to_hub_token
        ray_scope resume_from_checkpoint run_name system_prompt torch_compile_backend torch_compile_mode torch_dtype
        torchdynamo vllm_guided_decoding_regex vllm_server_base_url wandb_entity wandb_project wandb_run_group
    """,
}
"""Type, in the words of ``Field.type`` -> names."""
_GROUPS: Mapping[str, str] = {
    "dataset": """
        dataset_config dataset_mixture dataset_name dataset_prompt_column dataset_test_split dataset_train_split
    """,
    "model": """
        attn_implementation bnb_4bit_quant_type load_in_4bit load_in_8bit lora_alpha lora_dropout
        lora_modules_to_save lora_r lora_target_modules lora_task_type model_name_or_path model_revision torch_dtype
        trust_remote_code use_bnb_nested_quant use_dora use_peft use_rslora
    """,
    "script": """
        code_eval_scoring_mode code_eval_test_batch_size code_language code_provider cosine_max_len
        cosine_max_value_correct cosine_max_value_wrong cosine_min_value_correct cosine_min_value_wrong
        e2b_router_url gradient_checkpointing_use_reentrant ignore_bias_buffers ioi_provider max_completion_len
        morph_router_url parallel_code_exec_per_proc repetition_max_penalty repetition_n_grams reward_funcs
        soft_punish_cache
    """,
}
"""Those that are no training arguments."""
_DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "max_completion_length": 256,
    "max_prompt_length": 512,
    "dataset_prompt_column": "prompt",
    "dataset_train_split": "train",
    "beta": 0.04,
    "loss_type": "bnpo",
    "temperature": 1.0,
    "scale_rewards": True,
    "learning_rate": 1e-06,
    "num_iterations": 1,
    "epsilon": 0.2,
    "vllm_mode": "server",
    "code_provider": "e2b",
}
"""Defaults that a study reads."""

_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names.split()}

FIELDS: Mapping[str, Field] = {
    name: Field(name, kind, _DEFAULTS.get(name), name not in _DEFAULTS, _GROUP_OF.get(name, "training"))
    for kind, names in _BY_TYPE.items()
    for name in names.split()
}
"""By name."""
