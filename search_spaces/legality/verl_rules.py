"""Rules of verl 0.9.1 that verl applies late or silently; V numbers are those of docs/verl.md.

verl checks V1, V4 and V11 before it starts (``verl/utils/config.py``, ``workers/config/actor.py``) and the others in
its workers, after the model is loaded. Shared rules cover V7 (``token_budget``), V10 (``tensor_parallel_world``), V11
(``sequence_parallel``) and V12 (``model_length``). V2, V3, V8, V9, V15 and V16 cannot be broken: a trial always sets
rows and budgets, the same for both passes.
"""

from __future__ import annotations

from search_spaces.legality.case import COMPARED, Case, only, rule, rules_in

FRAMEWORK = "verl"
_OPTIMIZERS = (
    *("adamw_torch", "adamw_torch_fused", "adamw_torch_8bit", "adamw_torch_4bit"),
    *("adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit"),
)
"""Optimizers of torch, torchao or bitsandbytes that verl can load (``workers/config/optimizer.py:build_optimizer``)."""


@rule(())
def verl_device(case: Case) -> str | None:
    """Requires GPUs: verl's platforms are CUDA, ROCm and NPU."""
    if case.on_gpu:
        return None
    return "verl trains on GPUs only, and this is a CPU run"


@rule(("rollout_engine", "rollout_mode", "async_generation"), ("rollout_mode", "async_generation"))
def verl_colocated(case: Case) -> str | None:
    """Requires ``async_generation`` for a rollout server, whose rollouts come from older weights (V14)."""
    if not case.server or case.get("async_generation") is True:
        return None
    text = "rollout_mode server: on GPUs of its own verl generates only beside training, with older weights"
    return f"{text}; it needs async_generation"


@rule(
    frozenset({*COMPARED, "rollout_engine", "rollout_mode", "async_generation", "weight_sync_every"}),
    ("weight_sync_every", "steps_per_generation"),
)
def verl_sync_every(case: Case) -> str | None:
    """Requires a rollout to span ``weight_sync_every`` updates (``trainer/ppo/v1/trainer_separate_async.py``)."""
    if not case.server or case.get("async_generation") is not True:
        return None
    batch, every = case.batch, case.at_least_one("weight_sync_every")
    if batch.steps == every * batch.accumulation:
        return None
    return (
        f"steps_per_generation {batch.steps} is not weight_sync_every {every} × gradient_accumulation_steps "
        f"{batch.accumulation}: verl's train_batch_size is so many ppo_mini_batch_size where it generates on other GPUs"
    )


@rule(("rollout_engine", "rollout_mode", "weight_sync_backend"), ("weight_sync_backend",))
def verl_sync_backend(case: Case) -> str | None:
    """Requires a transfer backend for an engine on other GPUs (``trainer/ppo/v1/trainer_separate_async.py``)."""
    if not case.server or case.get("weight_sync_backend") not in (None, "naive"):
        return None
    return "weight_sync_backend naive reaches no engine on other GPUs; use nccl"


@rule(
    ("rollout_engine", "rollout_mode", "weight_sync_backend", "speculative_decoding"),
    ("speculative_decoding", "weight_sync_backend"),
)
def verl_guessed_deltas(case: Case) -> str | None:
    """Refuses delta weight transfer with speculative decoding (``vllm_rollout/delta_weight_transfer.py:228``)."""
    if not case.server or case.get("weight_sync_backend") != "delta_sharded":
        return None
    guesses = case.get("speculative_decoding") not in (None, "none")
    return "weight_sync_backend delta_sharded cannot be used with speculative_decoding in verl" if guesses else None


@rule(("rollout_engine", "rollout_mode", "rollout_gpus", "tensor_parallel_size"), ("tensor_parallel_size",))
def verl_hybrid_engine(case: Case) -> str | None:
    """Requires training GPUs divisible by the engine's size: they hold engines as well (``hybrid_engine``)."""
    size = case.at_least_one("tensor_parallel_size")
    if not case.server or case.training_gpus % size == 0:
        return None
    return (
        f"tensor_parallel_size {size} does not divide {case.ranks_in_words(case.training_gpus)}, which hold engines too"
    )


@rule(
    frozenset({*COMPARED, "dynamic_batching", "training_engine"}),
    ("micro_batch_size", "steps_per_generation", "dynamic_batching"),
)
def verl_rollout_rows(case: Case) -> str | None:
    """Requires rollout rows divisible by all training GPUs, without dynamic batching or Megatron (V1)."""
    if case.get("dynamic_batching") is True or case.megatron:
        return None
    rows, gpus = case.batch.rollout_rows, case.training_gpus
    if rows % gpus == 0:
        return None
    return f"{rows} rows of a rollout are not divisible by {case.ranks_in_words(gpus)}, which verl asks for"


@rule(COMPARED, ("steps_per_generation",))
def verl_rollout_covers_update(case: Case) -> str | None:
    """Requires a rollout to hold at least the prompts of an update (V4)."""
    batch = case.batch
    if batch.steps >= batch.accumulation:
        return None
    return (
        f"steps_per_generation {batch.steps} is less than gradient_accumulation_steps {batch.accumulation}: "
        f"verl's train_batch_size cannot be less than its ppo_mini_batch_size"
    )


@rule(COMPARED, ("steps_per_generation",))
def verl_whole_updates(case: Case) -> str | None:
    """Requires a rollout of whole updates; verl pads the last update with rows without a gradient (V19)."""
    batch = case.batch
    if batch.accumulation < 1 or batch.steps < batch.accumulation:
        return None
    if batch.steps % batch.accumulation == 0:
        return None
    return (
        f"steps_per_generation {batch.steps} is no multiple of gradient_accumulation_steps {batch.accumulation}: "
        "verl would fill the last update up with rows that teach nothing"
    )


@rule(COMPARED, ("micro_batch_size", "num_generations"))
def verl_whole_prompts(case: Case) -> str | None:
    """Requires whole groups in an update, because verl counts ppo_mini_batch_size in prompts (V5)."""
    batch = case.batch
    if batch.group < 2 or batch.rows % batch.group == 0:
        return None
    product = f"{case.ranks_in_words(batch.ranks)} × micro-batch {batch.micro} × accumulation {batch.accumulation}"
    return f"{product} = {batch.rows} rows are no whole groups of {batch.group}, and verl counts an update in prompts"


@rule(frozenset({*COMPARED, "dynamic_batching", "logprob_rows"}), ("logprob_rows", "dynamic_batching"))
def verl_logprob_rows(case: Case) -> str | None:
    """Requires ``logprob_rows`` that divides a rank's rows of the rollout (V6)."""
    rows, batch = case.number("logprob_rows"), case.batch
    if case.get("dynamic_batching") is True or rows is None or rows < 1:
        return None
    have = batch.micro * batch.steps
    if have % rows == 0:
        return None
    return f"logprob_rows {rows} does not divide the {have} rows of a rank, and verl asks for equal parts"


@rule(("sequence_parallel_size", "training_engine"), ("sequence_parallel_size",))
def verl_ulysses_heads(case: Case) -> str | None:
    """Requires attention heads that the ranks of a sequence divide (``models/transformers/monkey_patch.py:343``)."""
    size, model = case.at_least_one("sequence_parallel_size"), case.resources.model
    if size == 1 or case.megatron:
        return None
    heads, keys = model.attention_heads, model.key_value_heads
    if heads and heads % size:
        return f"the model's {heads} attention heads are not divisible by sequence_parallel_size {size}"
    if keys and keys % size and size % keys:
        return f"neither of the model's {keys} key-value heads and sequence_parallel_size {size} divides the other"
    return None


@rule(("pad_to_multiple", "remove_padding"), ("pad_to_multiple", "remove_padding"))
def verl_fixed_shape(case: Case) -> str | None:
    """Requires packed rows for padding lengths to a multiple (``workers/config/engine.py``, pad_to_length)."""
    multiple = case.number("pad_to_multiple") or 1
    if multiple == 1 or case.get("remove_padding") is not False:
        return None
    return f"pad_to_multiple {multiple} needs remove_padding in verl"


@rule(("dynamic_sampling",), ("dynamic_sampling",))
def verl_dynamic_sampling(case: Case) -> str | None:
    """Refuses dynamic sampling, which generates groups again (``trainer/ppo/v1/replay_buffer.py:255``)."""
    if case.get("dynamic_sampling") is not True:
        return None
    return "dynamic_sampling (filter_groups): verl generates groups anew, and a trial gives each completion one length"


@rule(("fsdp",), ("fsdp",))
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


@rule(("rollout_engine", "rollout_mode", "sleep_level"), ("sleep_level",))
def verl_sleep(case: Case) -> str | None:
    """Allows sleep level 2 or none: verl's engine drops its weights when it sleeps."""
    if not case.colocated or case.number("sleep_level") != 1:
        return None
    return "sleep_level 1: verl's engine sleeps at level 2 or not at all"


@rule(("optimizer",), ("optimizer",))
def verl_optimizer(case: Case) -> str | None:
    """Requires an optimizer class that verl can load."""
    name = case.get("optimizer")
    if name is None or name in _OPTIMIZERS:
        return None
    return f"optimizer {name} is none that a verl trial has; use one of {', '.join(_OPTIMIZERS)}"


RULES = tuple(each if each is fsdp_version else only(FRAMEWORK, each) for each in rules_in(globals()))
"""Rules of verl alone, except ``fsdp_version``."""
