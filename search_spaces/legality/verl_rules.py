"""Rules of verl 0.9.1 that verl checks late or not at all; V numbers are those of docs/verl.md.

verl checks V1, V4 and V11 before it starts (``verl/utils/config.py``, ``workers/config/actor.py``) and the others in
its workers, after the model is loaded. Shared rules cover V7 (``token_budget``), V10 (``tensor_parallel_world``), V11
(``sequence_parallel``) and V12 (``model_length``). V2, V3, V8, V9, V15 and V16 cannot be broken: a trial always sets
rows and budgets, the same for both passes.
"""

from __future__ import annotations

from search_spaces.legality.case import Case, forbid, only, rule

FRAMEWORK = "verl"
_OPTIMIZERS = (
    *("adamw_torch", "adamw_torch_fused", "adamw_torch_8bit", "adamw_torch_4bit"),
    *("adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit"),
)
"""Optimizers of torch, torchao or bitsandbytes that verl can load (``workers/config/optimizer.py:build_optimizer``)."""


@rule(("sequence_parallel_size", "training_engine"), ("sequence_parallel_size",))
def verl_ulysses_heads(case: Case) -> str | None:
    """Requires heads divisible by ``sequence_parallel_size`` (``models/transformers/monkey_patch.py:343``)."""
    size, model = case.at_least_one("sequence_parallel_size"), case.resources.model
    if size == 1 or case.megatron:
        return None
    heads, keys = model.attention_heads, model.key_value_heads
    if heads and heads % size:
        return f"the model's {heads} attention heads are not divisible by sequence_parallel_size {size}"
    if keys and keys % size and size % keys:
        return f"neither of the model's {keys} key-value heads and sequence_parallel_size {size} divides the other"
    return None


@rule(("fsdp",))
def fsdp_version(case: Case) -> str | None:
    """Requires fsdp1 or fsdp2 in verl; forbids fsdp1 elsewhere."""
    kind = case.get("fsdp")
    if case.framework == FRAMEWORK:
        return "fsdp none: verl shards with fsdp1 or fsdp2" if kind == "none" else None
    return f"fsdp fsdp1 is none that {case.framework} shards with here; use fsdp2" if kind == "fsdp1" else None


@rule(
    ("fsdp", "fsdp_offload", "rollout_offload_model", "rollout_offload_optimizer"),
    ("fsdp_offload", "rollout_offload_model", "rollout_offload_optimizer"),
)
def verl_offload(case: Case) -> str | None:
    """Refuses verl's own offloading with FSDP2's offloading (``workers/engine/fsdp/transformer_impl.py``)."""
    if case.get("fsdp_offload") is not True or case.get("fsdp") != "fsdp2":
        return None
    named = [n for n in ("rollout_offload_model", "rollout_offload_optimizer") if case.get(n) is True]
    return f"{named[0]} does nothing in verl beside fsdp_offload, which keeps all of it on the host" if named else None


def _product(c: Case) -> str:
    batch = c.batch
    return f"{c.ranks_in_words(batch.ranks)} × micro-batch {batch.micro} × accumulation {batch.accumulation}"


RULES = (
    *only(
        lambda c: c.framework == FRAMEWORK,
        # verl's platforms are CUDA, ROCm and NPU.
        forbid("verl_device:", lambda c: not c.on_gpu, "verl trains on GPUs only, and this is a CPU run"),
        forbid(  # V14
            "verl_colocated: rollout_mode async_generation | rollout_engine",
            lambda c: c.server and c["async_generation"] is not True,
            "rollout_mode server: on GPUs of its own verl generates only beside training, with older weights; "
            "it needs async_generation",
        ),
        forbid(  # ``trainer/ppo/v1/trainer_separate_async.py``
            "verl_sync_every: weight_sync_every steps_per_generation | batch async_generation",
            lambda c: (
                (c.server and c["async_generation"] is True)
                and c.batch.steps != c.at_least_one("weight_sync_every") * c.batch.accumulation
            ),
            lambda c: (
                f"steps_per_generation {c.batch.steps} is not weight_sync_every {c.at_least_one('weight_sync_every')} "
                f"× gradient_accumulation_steps {c.batch.accumulation}: verl's train_batch_size is so many "
                "ppo_mini_batch_size where it generates on other GPUs"
            ),
        ),
        forbid(  # ``trainer/ppo/v1/trainer_separate_async.py``
            "verl_sync_backend: weight_sync_backend | rollout_engine rollout_mode",
            lambda c: c.server and c["weight_sync_backend"] in (None, "naive"),
            "weight_sync_backend naive reaches no engine on other GPUs; use nccl",
        ),
        forbid(  # ``vllm_rollout/delta_weight_transfer.py:228``
            "verl_guessed_deltas: speculative_decoding weight_sync_backend | rollout_engine rollout_mode",
            lambda c: (
                (c.server and c["weight_sync_backend"] == "delta_sharded")
                and c["speculative_decoding"] not in (None, "none")
            ),
            "weight_sync_backend delta_sharded cannot be used with speculative_decoding in verl",
        ),
        forbid(  # the training GPUs hold engines as well (``hybrid_engine``)
            "verl_hybrid_engine: tensor_parallel_size | rollout_engine rollout_mode rollout_gpus",
            lambda c: c.server and c.training_gpus % c.at_least_one("tensor_parallel_size"),
            "tensor_parallel_size {c[tensor_parallel_size]} does not divide {c.trainers}, which hold engines too",
        ),
        forbid(  # V1
            "verl_rollout_rows: micro_batch_size steps_per_generation dynamic_batching | batch training_engine",
            lambda c: not (c["dynamic_batching"] is True or c.megatron) and c.batch.rollout_rows % c.training_gpus,
            "{c.batch.rollout_rows} rows of a rollout are not divisible by {c.trainers}, which verl asks for",
        ),
        forbid(  # V4
            "verl_rollout_covers_update: steps_per_generation | batch",
            lambda c: c.batch.steps < c.batch.accumulation,
            "steps_per_generation {c.batch.steps} is less than gradient_accumulation_steps {c.batch.accumulation}: "
            "verl's train_batch_size cannot be less than its ppo_mini_batch_size",
        ),
        forbid(  # V19
            "verl_whole_updates: steps_per_generation | batch",
            lambda c: 1 <= c.batch.accumulation <= c.batch.steps and c.batch.steps % c.batch.accumulation,
            "steps_per_generation {c.batch.steps} is no multiple of gradient_accumulation_steps {c.batch.accumulation}"
            ": verl would fill the last update up with rows that teach nothing",
        ),
        forbid(  # V5: verl counts ppo_mini_batch_size in prompts
            "verl_whole_prompts: micro_batch_size num_generations | batch",
            lambda c: c.batch.group >= 2 and c.batch.rows % c.batch.group,
            lambda c: (
                f"{_product(c)} = {c.batch.rows} rows are no whole groups of {c.batch.group}, and verl counts an "
                "update in prompts"
            ),
        ),
        forbid(  # V6
            "verl_logprob_rows: logprob_rows dynamic_batching | batch",
            lambda c: (
                (c["dynamic_batching"] is not True and (c.number("logprob_rows") or 0) >= 1)
                and c.batch.micro * c.batch.steps % c.at_least_one("logprob_rows")
            ),
            lambda c: (
                f"logprob_rows {c['logprob_rows']} does not divide the {c.batch.micro * c.batch.steps} rows of a rank, "
                "and verl asks for equal parts"
            ),
        ),
        verl_ulysses_heads,
        forbid(  # ``workers/config/engine.py``, pad_to_length
            "verl_fixed_shape: pad_to_multiple remove_padding",
            lambda c: (c.number("pad_to_multiple") or 1) != 1 and c["remove_padding"] is False,
            "pad_to_multiple {c[pad_to_multiple]} needs remove_padding in verl",
        ),
        forbid(  # ``trainer/ppo/v1/replay_buffer.py:255``
            "verl_dynamic_sampling: dynamic_sampling",
            lambda c: c["dynamic_sampling"] is True,
            "dynamic_sampling (filter_groups): verl generates groups anew, and a trial gives each completion one "
            "length",
        ),
    ),
    fsdp_version,
    *only(
        lambda c: c.framework == FRAMEWORK,
        verl_offload,
        forbid(  # verl's engine drops its weights when it sleeps
            "verl_sleep: sleep_level | rollout_engine rollout_mode",
            lambda c: c.colocated and c.number("sleep_level") == 1,
            "sleep_level 1: verl's engine sleeps at level 2 or not at all",
        ),
        forbid(
            "verl_optimizer: optimizer",
            lambda c: c["optimizer"] not in (None, *_OPTIMIZERS),
            f"optimizer {{c[optimizer]}} is none that a verl trial has; use one of {', '.join(_OPTIMIZERS)}",
        ),
    ),
)
"""Rules of verl alone, except ``fsdp_version``."""
