"""The keys of verl's own configuration files: of 0.9.1, for FSDP and for Megatron, and those that earlier versions had.

Made by composing ``ppo_trainer`` and ``ppo_megatron_trainer`` of ``verl/trainer/config`` with Hydra. A key that a file
sets to nothing (``null``, ``{}``) may hold others, which are not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping

_NOW = """
.: model_engine
actor_rollout_ref: hybrid_engine nccl_timeout
actor_rollout_ref.actor: _target_ calculate_entropy calculate_sum_pi_squared clip_ratio clip_ratio_c clip_ratio_high
  clip_ratio_low data_loader_seed entropy_checkpointing entropy_coeff entropy_from_logits_chunk_size
  entropy_from_logits_with_chunking freeze_vision_tower grad_clip kl_loss_coef kl_loss_type loss_agg_mode
  loss_scale_factor pad_to_length ppo_epochs ppo_max_token_len_per_gpu ppo_micro_batch_size
  ppo_micro_batch_size_per_gpu ppo_mini_batch_size rollout_n shuffle strategy tau_neg tau_pos
  ulysses_sequence_parallel_size use_dynamic_bsz use_fused_kernels use_kl_loss use_prefix_grouper use_remove_padding
  use_torch_compile
actor_rollout_ref.actor.checkpoint: _target_ async_save load_contents mbridge_config save_contents strict
actor_rollout_ref.actor.fsdp_config: _target_ dtype entropy_checkpointing entropy_from_logits_chunk_size
  entropy_from_logits_with_chunking forward_only forward_prefetch fsdp_size full_determinism model_dtype
  offload_policy optimizer_offload pad_to_length pad_to_length_bucket param_offload reshard_after_forward seed
  strategy ulysses_sequence_parallel_size use_no_sync_for_gradient_accumulation use_orig_params use_torch_compile
actor_rollout_ref.actor.fsdp_config.qat: _target_ activation_observer enable group_size ignore_patterns mode
  quantization_config_path
actor_rollout_ref.actor.fsdp_config.turbo_config.distributed: expert_fully_shard_parallel_size expert_parallel_size
  fully_shard_parallel_size tensor_parallel_size ulysses_parallel_size
actor_rollout_ref.actor.fsdp_config.turbo_config.distributed.fsdp_plan: fsdp_implementation num_to_backward_prefetch
  num_to_forward_prefetch output_dtype param_dtype reduce_dtype
actor_rollout_ref.actor.fsdp_config.wrap_policy: min_num_params
actor_rollout_ref.actor.megatron: _target_ context_parallel_size dist_checkpointing_path dist_checkpointing_prefix
  dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient dtype dynamic_context_parallel
  entropy_from_logits_chunk_size entropy_from_logits_with_chunking expert_model_parallel_size
  expert_tensor_parallel_size forward_only max_seqlen_per_dp_cp_rank optimizer_offload override_ddp_config
  override_mcore_model_config pad_bshd_to_minibatch_max pad_to_length pad_to_length_bucket param_offload
  pipeline_model_parallel_size seed sequence_parallel tensor_model_parallel_size use_dist_checkpointing
  use_distributed_optimizer use_mbridge use_megatron_fsdp use_remove_padding vanilla_mbridge
  virtual_pipeline_model_parallel_size
actor_rollout_ref.actor.megatron.override_transformer_config: attention_backend recompute_granularity
  recompute_method recompute_modules recompute_num_layers
actor_rollout_ref.actor.megatron.qat: _target_ activation_observer enable group_size ignore_patterns mode
  quantization_config_path
actor_rollout_ref.actor.megatron.router_replay: _target_ mode record_file replay_file
actor_rollout_ref.actor.optim: _target_ betas clip_grad exp_avg_dtype exp_avg_sq_dtype lr lr_decay_steps
  lr_decay_style lr_scheduler_type lr_warmup_init lr_warmup_steps lr_warmup_steps_ratio lr_wsd_decay_steps
  lr_wsd_decay_style main_grads_dtype min_lr min_lr_ratio muon_coefficient_type muon_extra_scale_factor
  muon_fp32_matmul_prec muon_match_adamw_update_rms muon_momentum muon_nesterov muon_num_ns_steps
  muon_scalar_optimizer muon_scale_mode muon_split_qkv muon_tp_mode num_cycles optimizer optimizer_impl
  override_optimizer_config total_training_steps use_checkpoint_opt_param_scheduler
  use_layer_wise_distributed_optimizer use_precision_aware_optimizer warmup_style weight_decay
  weight_decay_incr_style zero_indexed_step
actor_rollout_ref.actor.policy_loss: _target_ clip_cov_lb clip_cov_ratio clip_cov_ub dro_beta kl_cov_ratio loss_mode
  ppo_kl_coef
actor_rollout_ref.actor.profiler: _target_ all_ranks enable finish_hook_all_ranks finish_hook_cmd finish_hook_ranks
  ranks relocate_results save_path tool
actor_rollout_ref.actor.profiler.tool_config.npu: _target_ analysis contents discrete level
actor_rollout_ref.actor.profiler.tool_config.nsys: _target_ discrete
actor_rollout_ref.actor.profiler.tool_config.precision_debugger: _target_ config_path stages steps strict
actor_rollout_ref.actor.profiler.tool_config.torch: _target_ contents discrete
actor_rollout_ref.actor.profiler.tool_config.torch.schedule: _target_ active repeat skip_first wait warmup
actor_rollout_ref.actor.profiler.tool_config.torch_memory: _target_ memory_snapshot_num_steps stack_depth
  trace_alloc_max_entries
actor_rollout_ref.actor.qat: activation_observer enable group_size ignore_patterns mode quantization_config_path
actor_rollout_ref.model: _target_ custom_chat_template enable_activation_offload enable_gradient_checkpointing
  exclude_modules external_lib hf_config_path lora_adapter_path lora_alpha lora_rank override_config path
  target_modules tokenizer_path trust_remote_code use_fused_kernels use_liger use_remove_padding use_shm
actor_rollout_ref.model.fused_kernel_options: impl_backend
actor_rollout_ref.model.lora: a2a_experimental adapter_path alpha dropout dropout_position dtype exclude_modules
  freeze_language_model freeze_vision_model freeze_vision_projection lora_A_init_method lora_B_init_method merge
  rank target_modules type
actor_rollout_ref.model.mtp: _target_ detach_encoder enable enable_rollout enable_train method
  mtp_loss_scaling_factor num_speculative_tokens speculative_algorithm speculative_eagle_topk
  speculative_num_draft_tokens speculative_num_steps
actor_rollout_ref.model.tiled_mlp: enabled num_shards
actor_rollout_ref.ref: _target_ entropy_checkpointing entropy_from_logits_chunk_size
  entropy_from_logits_with_chunking log_prob_max_token_len_per_gpu log_prob_micro_batch_size
  log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz pad_to_length rollout_n strategy
  ulysses_sequence_parallel_size use_torch_compile
actor_rollout_ref.ref.megatron: _target_ context_parallel_size dist_checkpointing_path dist_checkpointing_prefix
  dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient dtype dynamic_context_parallel
  entropy_from_logits_chunk_size entropy_from_logits_with_chunking expert_model_parallel_size
  expert_tensor_parallel_size forward_only max_seqlen_per_dp_cp_rank optimizer_offload override_ddp_config
  override_mcore_model_config override_transformer_config pad_bshd_to_minibatch_max pad_to_length
  pad_to_length_bucket param_offload pipeline_model_parallel_size seed sequence_parallel tensor_model_parallel_size
  use_dist_checkpointing use_distributed_optimizer use_mbridge use_megatron_fsdp use_remove_padding vanilla_mbridge
  virtual_pipeline_model_parallel_size
actor_rollout_ref.rollout: _target_ calculate_log_probs cudagraph_capture_sizes data_parallel_size disable_log_stats
  do_sample dtype enable_chunked_prefill enable_prefix_caching enable_rollout_routing_replay enforce_eager
  expert_parallel_size free_cache_engine full_determinism gpu_memory_utilization ignore_eos layered_summon
  load_format log_prob_max_token_len_per_gpu log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu
  log_prob_use_dynamic_bsz logprobs_mode max_model_len max_num_batched_tokens max_num_seqs mode
  moe_load_balance_metrics_interval mtp multi_stage_wake_up n n_gpus_per_node name nnodes over_sample_rate
  pipeline_model_parallel_size prompt_length qat quantization quantization_config_file response_length
  router_config_path scheduling_policy seed skip_tokenizer_init temperature tensor_model_parallel_size top_k top_p
actor_rollout_ref.rollout.agent: _target_ agent_loop_config_path default_agent_loop num_workers
actor_rollout_ref.rollout.agent.custom_async_server: _target_ name path
actor_rollout_ref.rollout.checkpoint_engine: _target_ backend custom_backend_module engine_kwargs
  update_weights_bucket_megabytes
actor_rollout_ref.rollout.disaggregation: bootstrap_port decode_replicas decode_tensor_model_parallel_size enabled
  ib_device prefill_replicas transfer_backend
actor_rollout_ref.rollout.engine_kwargs: sglang trtllm vllm
actor_rollout_ref.rollout.multi_turn: _target_ enable format function_tool_path max_assistant_turns
  max_parallel_calls max_tool_response_length max_user_turns num_repeat_rollouts tokenization_sanity_check_mode
  tool_config_path tool_response_truncate_side use_inference_chat_template
actor_rollout_ref.rollout.profiler: _target_ all_ranks enable finish_hook_all_ranks finish_hook_cmd
  finish_hook_ranks ranks relocate_results save_path tool
actor_rollout_ref.rollout.profiler.tool_config.npu: _target_ analysis contents discrete level profile_token_end
  profile_token_start
actor_rollout_ref.rollout.profiler.tool_config.precision_debugger: _target_ config_path stages steps strict
actor_rollout_ref.rollout.profiler.tool_config.torch: _target_ contents discrete profile_token_end
  profile_token_start
actor_rollout_ref.rollout.prometheus: _target_ enable file port served_model_name
actor_rollout_ref.rollout.trace: _target_ backend experiment_name max_samples_per_step_per_worker project_name
  token2text
actor_rollout_ref.rollout.val_kwargs: _target_ do_sample n temperature top_k top_p
algorithm: _target_ adv_estimator gamma kl_penalty lam norm_adv_by_std_in_grpo use_kl_in_reward use_pf_ppo
algorithm.filter_groups: _target_ enable max_inflight_gen_batches max_num_gen_batches metric
algorithm.kl_ctrl: _target_ horizon kl_coef target_kl type
algorithm.pf_ppo: reweight_method weight_pow
algorithm.rollout_correction: bypass_mode loss_type rollout_is rollout_is_batch_normalize rollout_is_threshold
  rollout_rs rollout_rs_threshold
critic: _target_ cliprange_value data_loader_seed enable forward_max_token_len_per_gpu forward_micro_batch_size
  forward_micro_batch_size_per_gpu grad_clip loss_agg_mode loss_scale_factor nccl_timeout ppo_epochs
  ppo_max_token_len_per_gpu ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_mini_batch_size rollout_n shuffle
  strategy ulysses_sequence_parallel_size use_dynamic_bsz
critic.checkpoint: _target_ async_save load_contents mbridge_config save_contents
custom_reward_function: name path
data: apply_chat_template_kwargs audio_key dataloader_num_workers filter_overlong_prompts
  filter_overlong_prompts_workers function_tool_path gen_batch_size image_key image_patch_size max_prompt_length
  max_response_length mm_processor_kwargs prompt_key return_full_prompt return_multi_modal_inputs return_raw_chat
  return_raw_input_ids reward_fn_key seed shuffle tokenizer tool_config_path train_batch_size train_files
  train_max_samples truncation trust_remote_code use_shm val_batch_size val_files val_max_samples validation_shuffle
  video_key
data.custom_cls: name path
distillation: _target_ enabled n_gpus_per_node nnodes teacher_key
distillation.distillation_loss: _target_ clip_ratio clip_ratio_high clip_ratio_low distillation_loss_coef
  log_prob_min_clamp loss_max_clamp loss_mode policy_loss_mode topk use_policy_gradient use_task_rewards
distillation.teacher_models.teacher_model: _target_ key model_path num_replicas
distillation.teacher_models.teacher_model.inference: _target_ cudagraph_capture_sizes data_parallel_size
  disable_log_stats dtype enable_chunked_prefill enable_prefix_caching enforce_eager engine_kwargs
  expert_parallel_size free_cache_engine gpu_memory_utilization limit_images load_format max_model_len
  max_num_batched_tokens max_num_seqs name prompt_length response_length skip_tokenizer_init temperature
  tensor_model_parallel_size
global_profiler: _target_ finish_hook_all_ranks finish_hook_cmd finish_hook_ranks profile_continuous_steps
  relocate_results save_path steps tool
global_profiler.global_tool_config.nsys: _target_ discrete
global_profiler.global_tool_config.nsys.controller_nsight_options: cuda-graph-trace cuda-memory-usage trace
global_profiler.global_tool_config.nsys.worker_nsight_options: capture-range capture-range-end cuda-graph-trace
  cuda-memory-usage kill trace
global_profiler.global_tool_config.precision_debugger: _target_ config_path stages steps strict
global_profiler.global_tool_config.torch_memory: context kw_args memory_snapshot_num_steps stack_depth stacks
  trace_alloc_max_entries
ray_kwargs: timeline_json_file
ray_kwargs.ray_init: num_cpus
ray_kwargs.ray_init.runtime_env: py_executable
reward: _target_ num_workers
reward.custom_reward_function: name path
reward.reward_manager: _target_ name source
reward.reward_manager.module: _target_ name path
reward.reward_model: _target_ enable enable_resource_pool model_path n_gpus_per_node nnodes
reward.reward_model.rollout: _target_ cudagraph_capture_sizes data_parallel_size disable_log_stats do_sample dtype
  enable_chunked_prefill enable_prefix_caching enforce_eager engine_kwargs expert_parallel_size free_cache_engine
  full_determinism gpu_memory_utilization ignore_eos layered_summon limit_images load_format max_model_len
  max_num_batched_tokens max_num_seqs mtp multi_stage_wake_up n name pipeline_model_parallel_size prompt_length
  quantization quantization_config_file response_length scheduling_policy seed skip_tokenizer_init temperature
  tensor_model_parallel_size top_k top_p
reward.reward_model.rollout.disaggregation: bootstrap_port decode_replicas decode_tensor_model_parallel_size enabled
  ib_device prefill_replicas transfer_backend
reward.sandbox_fusion: _target_ max_concurrent memory_limit_mb url
reward_model: enable enable_resource_pool n_gpus_per_node nnodes num_workers reward_loop_class_name
  reward_loop_module_path reward_loop_source reward_manager
reward_model.model: external_lib path trust_remote_code
reward_model.rollout: cudagraph_capture_sizes data_parallel_size disable_log_stats dtype enable_chunked_prefill
  enable_prefix_caching enforce_eager engine_kwargs expert_parallel_size free_cache_engine gpu_memory_utilization
  limit_images load_format max_model_len max_num_batched_tokens max_num_seqs name prompt_length response_length
  skip_tokenizer_init tensor_model_parallel_size
sandbox_fusion: max_concurrent memory_limit_mb url
skip: _target_
skip.async_rollout: action dump_dir enable steps
skip.rollout: action dump_dir enable steps
skip.rollout_tq: action dump_dir enable steps
trainer: balance_batch checkpoint_callback_class critic_warmup default_hdfs_dir default_local_dir
  del_local_ckpt_after_load device esi_redundant_time experiment_name log_val_generations logger
  max_actor_ckpt_to_keep max_critic_ckpt_to_keep n_gpus_per_node nnodes project_name
  ray_wait_register_center_timeout resume_from_path resume_mode rollout_data_dir save_freq test_freq total_epochs
  total_training_steps use_v1 val_before_train val_only validation_data_dir
trainer.v1: sync trainer_mode
trainer.v1.colocate_async: num_warmup_batches
trainer.v1.sampler: max_off_policy_strategy max_off_policy_threshold sampler_kwargs sync_refill_failed_groups
trainer.v1.sampler.custom_sampler: name path
trainer.v1.separate_async: num_warmup_batches parameter_sync_step
trainer.v1.separate_async.hybrid_rollout: _target_ adaptive_switch_threshold enable_switch switch_cost_window_size
  switch_threshold_ratio switch_threshold_release_steps switch_threshold_step_down switch_threshold_step_up
transfer_queue: enable
transfer_queue.backend: storage_backend
transfer_queue.backend.MooncakeStore: auto_init device_name global_segment_size local_buffer_size local_hostname
  master_server_address metadata_server protocol
transfer_queue.backend.SimpleStorage: num_data_storage_units total_storage_size
transfer_queue.metrics: enabled port
"""
"""Place: the names below it. Of verl 0.9.1, without those of ``_ALIKE``."""

_ACTOR = "actor_rollout_ref.actor."
_ALIKE: Mapping[str, str] = {
    **dict.fromkeys(("actor_rollout_ref.ref.fsdp_config", "critic.fsdp"), _ACTOR + "fsdp_config"),
    **dict.fromkeys(("actor_rollout_ref.ref.profiler", "critic.profiler"), _ACTOR + "profiler"),
    **{f"actor_rollout_ref.ref.megatron.{part}": f"{_ACTOR}megatron.{part}" for part in ("qat", "router_replay")},
    **{f"critic.{part}": _ACTOR + part for part in ("megatron", "optim")},
    "critic.model": "actor_rollout_ref.model",
}
"""Place of 0.9.1 -> the place above that has the same names, itself and below."""

_BEFORE = """
actor_rollout_ref.actor: load_weight sum_pi_squared_checkpointing
actor_rollout_ref.actor.checkpoint: contents
actor_rollout_ref.actor.fsdp_config: grad_offload
actor_rollout_ref.actor.megatron: grad_offload num_layers_per_virtual_pipeline_stage override_transformer_config
actor_rollout_ref.actor.profile: profile_ranks save_path step_end step_start use_profile
actor_rollout_ref.actor.profiler: discrete
actor_rollout_ref.actor.profiler.tool_config.torch: step_end step_start
actor_rollout_ref.actor.router_replay: _target_ mode record_file replay_file
actor_rollout_ref.model.gradient_checkpointing_kwargs: activations_checkpoint_granularity
  activations_checkpoint_method activations_checkpoint_num_layers
actor_rollout_ref.model.override_config: model_config
actor_rollout_ref.model.override_config.moe_config: freeze_moe_router
actor_rollout_ref.profiler: _target_ all_ranks discrete ranks
actor_rollout_ref.ref: load_weight model param_offload
actor_rollout_ref.ref.megatron: grad_offload num_layers_per_virtual_pipeline_stage
actor_rollout_ref.ref.profile: profile_ranks save_path step_end step_start use_profile
actor_rollout_ref.ref.profiler: discrete
actor_rollout_ref.ref.profiler.tool_config.torch: step_end step_start
actor_rollout_ref.ref.router_replay: _target_ mode record_file replay_file
actor_rollout_ref.rollout: skip_dump_dir skip_rollout update_weights_bucket_megabytes use_fire_sampling
actor_rollout_ref.rollout.engine_kwargs.sglang: attention_backend
actor_rollout_ref.rollout.engine_kwargs.vllm: disable_mm_preprocessor_cache swap_space
actor_rollout_ref.rollout.layer_name_map: gate_proj_layer_name qkv_layer_name
actor_rollout_ref.rollout.multi_turn: completion_callback interaction_config_path
actor_rollout_ref.rollout.profiler: discrete tool_config
actor_rollout_ref.rollout.skip: _target_ action dump_dir enable max_dump_step
algorithm.pf_ppo: _target_
algorithm.rollout_correction: rollout_rs_threshold_lower rollout_token_veto_threshold use_policy_gradient
critic: load_weight
critic.checkpoint: contents
critic.kl_ctrl: kl_coef type
critic.megatron: grad_offload num_layers_per_virtual_pipeline_stage override_transformer_config
critic.model.fsdp_config: _target_ dtype entropy_checkpointing entropy_from_logits_with_chunking forward_only
  forward_prefetch fsdp_size full_determinism grad_offload model_dtype offload_policy optimizer_offload
  param_offload reshard_after_forward seed strategy ulysses_sequence_parallel_size use_orig_params use_torch_compile
critic.model.fsdp_config.wrap_policy: min_num_params
critic.model.gradient_checkpointing_kwargs: activations_checkpoint_granularity activations_checkpoint_method
  activations_checkpoint_num_layers
critic.model.override_config: model_config
critic.model.override_config.moe_config: freeze_moe_router
critic.profiler: discrete
critic.profiler.tool_config.torch: step_end step_start
data.continuous_token: enable model_family
data.datagen: name path
data.sampler: class_name class_path
ray_init: num_cpus timeline_json_file
reward_manager: _target_ name source
reward_manager.module: _target_ name path
reward_model: forward_max_token_len_per_gpu launch_reward_fn_async load_weight max_length micro_batch_size
  micro_batch_size_per_gpu nccl_timeout param_offload strategy ulysses_sequence_parallel_size use_dynamic_bsz
  use_reward_loop
reward_model.megatron: _target_ context_parallel_size dist_checkpointing_path dist_checkpointing_prefix dtype
  expert_model_parallel_size expert_tensor_parallel_size num_layers_per_virtual_pipeline_stage
  override_transformer_config param_offload pipeline_model_parallel_size seed sequence_parallel
  tensor_model_parallel_size use_dist_checkpointing use_distributed_optimizer use_mbridge use_remove_padding
  vanilla_mbridge virtual_pipeline_model_parallel_size
reward_model.model: input_tokenizer override_config use_fused_kernels use_remove_padding use_shm
reward_model.model.fsdp_config: _target_ forward_prefetch fsdp_size min_num_params param_offload
  reshard_after_forward
reward_model.model.fsdp_config.wrap_policy: min_num_params
reward_model.profiler: _target_ all_ranks discrete enable ranks save_path tool tool_config
reward_model.rollout: _target_
reward_model.sandbox_fusion: max_concurrent memory_limit_mb url
trainer: profile_steps remove_previous_ckpt_in_save use_legacy_worker_impl val_generations_to_log_to_wandb
trainer.controller_nsight_options: cuda-graph-trace cuda-memory-usage trace
trainer.npu_profile.options: analysis level record_shapes save_path with_cpu with_memory with_module with_npu
  with_stack
trainer.worker_nsight_options: capture-range capture-range-end cuda-graph-trace cuda-memory-usage kill trace
"""
"""The same of 0.2.0, 0.3.0, 0.4.1, 0.5.0, 0.6.1, 0.7.0, 0.8.0 and 0.9.0, without those above."""


def _read(table: str) -> frozenset[str]:
    place, found = "", set[str]()
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            place = line.partition(":")[0]
        names = line.removeprefix(f"{place}:").split()
        found.update(name if place == "." else f"{place}.{name}" for name in names)
    return frozenset(found)


def _with_alike(keys: frozenset[str]) -> frozenset[str]:
    copies = (
        other + key.removeprefix(place)
        for other, place in _ALIKE.items()
        for key in keys
        if key.startswith(f"{place}.")
    )
    return keys.union(copies)


KEYS = _with_alike(_read(_NOW))
"""Those of 0.9.1, by their whole names."""
EARLIER = _read(_BEFORE)
"""Those that only earlier versions have."""
