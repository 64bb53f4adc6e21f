"""Rules of Megatron-Core, for every framework that trains with it, and further rules of Megatron-SWIFT.

Sources: ``megatron/core`` of Megatron-LM: ``parallel_state.py`` (``initialize_model_parallel``), ``transformer/
transformer_config.py`` (``__post_init__``), ``transformer/moe``; and in ``verl/workers/engine/megatron``. Line numbers
of Megatron-SWIFT (``megatron rlhf`` of ms-swift 4.6) refer to ``swift/megatron/arguments/megatron_args.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace

from search_spaces.batch import MODEL_PARALLEL
from search_spaces.knobs import KNOBS
from search_spaces.knobs.megatron import ENGINE
from search_spaces.legality.case import COMPARED, Case, Rule, forbid, only, rule

TENSOR, PIPELINE, VIRTUAL = "training_tensor_parallel_size", "pipeline_parallel_size", "virtual_pipeline_size"
CONTEXT, EXPERT, EXPERT_TENSOR = "sequence_parallel_size", "expert_parallel_size", "expert_tensor_parallel_size"
FIRST, LAST, SEQUENCE = "first_stage_layers", "last_stage_layers", "megatron_sequence_parallel"
GRANULARITY, METHOD, RECOMPUTED = "recompute_granularity", "recompute_method", "recompute_layers"
TORCH_ONLY = (
    *("fsdp", "fsdp_reshard_after_forward", "fsdp_offload", "fsdp_forward_prefetch", "fsdp_sync_once"),
    *("master_weights", "reduce_precision", "optimizer", "gradient_checkpointing", "activation_offload"),
    *("hub_kernels", "torch_compile", "pad_to_multiple", "entropy_checkpointing", "weight_sync_layered"),
)
"""Knobs of PyTorch's modules that Megatron's modules ignore."""
SWIFT_TORCH_ONLY = (
    *("zero_stage", "tf32", "attn_implementation", "checkpointing_reentrant", "empty_cache_steps", "ddp_bucket_mib"),
    *("weight_sync_batches", "async_generation"),
)
"""Further knobs that Megatron-SWIFT ignores: nothing below ``swift/megatron`` (4.6) reads their arguments."""


@rule(COMPARED, MODEL_PARALLEL)
def megatron_world(case: Case) -> str | None:
    """Requires training GPUs divisible by the product of tensor, pipeline and context parallel sizes."""
    sizes = [case.at_least_one(name) for name in (TENSOR, PIPELINE, CONTEXT)]
    if case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{TENSOR} {sizes[0]} × {PIPELINE} {sizes[1]} × {CONTEXT} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@rule(frozenset({*COMPARED, EXPERT, EXPERT_TENSOR}), (EXPERT, EXPERT_TENSOR))
def megatron_expert_world(case: Case) -> str | None:
    """Requires training GPUs divisible by the product of expert, expert tensor and pipeline parallel sizes."""
    tensor = case.number(EXPERT_TENSOR)
    sizes = [case.at_least_one(EXPERT), tensor or case.at_least_one(TENSOR), case.at_least_one(PIPELINE)]
    if (sizes[0] == 1 and tensor is None) or case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{EXPERT} {sizes[0]} × {EXPERT_TENSOR} {sizes[1]} × {PIPELINE} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@rule((EXPERT, EXPERT_TENSOR), (EXPERT,))
def megatron_experts(case: Case) -> str | None:
    """Requires a model with experts for expert parallelism, and an even number of experts on each rank."""
    size, experts = case.at_least_one(EXPERT), case.model.experts
    if size == 1 or experts is None or (experts and experts % size == 0):
        return None
    if not experts:
        return f"{EXPERT} {size} shares out experts, and the model has none"
    return f"the model's {experts} experts are not divisible by {EXPERT} {size}"


@rule((TENSOR,))
def megatron_heads(case: Case) -> str | None:
    """Requires that the tensor parallel size divides the attention heads, and divides or is divided by the KV heads."""
    size, model = case.at_least_one(TENSOR), case.model
    heads, keys = model.attention_heads, model.key_value_heads
    if heads and heads % size:
        return f"the model's {heads} attention heads are not divisible by {TENSOR} {size}"
    if keys and keys % size and size % keys:
        return f"neither of the model's {keys} key-value heads and {TENSOR} {size} divides the other"
    return None


@rule((PIPELINE, VIRTUAL, FIRST, LAST))
def megatron_layers(case: Case) -> str | None:
    """Requires equal layers in each stage and virtual stage; the first and the last may have their own number."""
    stages, parts, layers = case.at_least_one(PIPELINE), case.at_least_one(VIRTUAL), case.model.layers
    if stages == 1:
        return f"{VIRTUAL} {parts} needs {PIPELINE} above 1" if parts > 1 else None
    if not layers:
        return None
    own = [n for n in (case.number(FIRST), case.number(LAST)) if n]
    left, between = layers - sum(own), stages - len(own)
    if left < 0 or (between and (left % between or left == 0)) or (not between and left):
        beside = f" less {' and '.join(map(str, own))}" if own else ""
        return f"the model's {layers} layers{beside} are not shared evenly by {between} stages of {PIPELINE} {stages}"
    uneven = next((n for n in (*own, left // between if between else parts) if n % parts), None)
    return None if uneven is None else f"{uneven} layers of a stage are not divisible by {VIRTUAL} {parts}"


@rule((GRANULARITY, METHOD, RECOMPUTED), (METHOD, RECOMPUTED, GRANULARITY))
def megatron_recompute(case: Case) -> str | None:
    """Requires a method and a number of layers for full recomputation."""
    if case.get(GRANULARITY) != "full":
        return None
    lacking = [n for n in (METHOD, RECOMPUTED) if case.get(n) in (None, "none", 0)]
    return f"{GRANULARITY} full needs {' and '.join(lacking)}" if lacking else None


@rule(COMPARED, ("steps_per_generation", "micro_batch_size", "num_generations"))
def swift_megatron_prompts(case: Case) -> str | None:
    """Requires the prompts of a generation to divide over data-parallel ranks and micro-batches (lines 311 to 325)."""
    batch = case.batch
    if batch.group < 1 or batch.rollout_rows % batch.group:
        return None  # ``whole_groups`` says it
    prompts = batch.rollout_rows // batch.group
    text = f"{prompts} prompts of a generation ({batch.rollout_rows} rows / num_generations {batch.group})"
    if prompts % batch.ranks:
        return f"{text} are not divisible by {batch.ranks} data-parallel ranks, which Megatron-SWIFT asks for"
    if prompts // batch.ranks % batch.micro:
        each = f"{text} on {batch.ranks} data-parallel ranks are {prompts // batch.ranks} each"
        return f"{each}, not divisible by micro-batch {batch.micro}, which Megatron-SWIFT asks for"
    return None


@rule((PIPELINE, FIRST, LAST), (FIRST, LAST, PIPELINE))
def swift_megatron_stages(case: Case) -> str | None:
    """Requires several pipeline stages if the first or the last has its own number of layers (line 887)."""
    if case.at_least_one(PIPELINE) > 1:
        return None
    own = next((name for name in (FIRST, LAST) if case.number(name)), "")
    return f"{own} {case.number(own)} needs {PIPELINE} above 1" if own else None


def _rests(name: str) -> Rule:
    """Makes the rule that, with Megatron, refuses a knob of PyTorch's own modules."""
    return forbid(
        f"megatron_rests: {name} {ENGINE}",
        lambda c: c.values.get(name) not in (None, KNOBS[name].inactive_value(c.framework, c.resources.device)),
        f"{name} {{c[{name}]}} does nothing beside {ENGINE} megatron",
    )


OF_MEGATRON = (
    megatron_world,
    megatron_expert_world,
    megatron_experts,
    forbid(  # ``transformer/moe``
        f"megatron_expert_tokens: {SEQUENCE} | {TENSOR}",
        lambda c: c.at_least_one(TENSOR) > 1 and c.model.experts and c[SEQUENCE] is False,
        f"{SEQUENCE} false: Megatron trains experts with {TENSOR} above 1 only where tokens are shared out too",
    ),
    megatron_heads,
    megatron_layers,
    forbid(  # a token budget pads to a multiple of the stages
        f"megatron_micro_batches: micro_batch_size {VIRTUAL} | batch dynamic_batching",
        lambda c: (
            (c.at_least_one(VIRTUAL) > 1 and c["dynamic_batching"] is not True)
            and c.batch.accumulation % c.at_least_one(PIPELINE)
        ),
        f"gradient_accumulation_steps {{c.batch.accumulation}} is not divisible by {PIPELINE} {{c[{PIPELINE}]}}, "
        f"which {VIRTUAL} {{c[{VIRTUAL}]}} asks for",
    ),
    megatron_recompute,
    forbid(  # it trains in half precision, with fp32 copies
        "megatron_precision: precision",
        lambda c: c["precision"] not in (None, "bf16", "fp16"),
        "precision {c[precision]}: with Megatron it is bf16 or fp16",
    ),
    *map(_rests, TORCH_ONLY),
)
OF_SWIFT = (
    *map(_rests, SWIFT_TORCH_ONLY),
    forbid(  # line 460
        "swift_megatron_engine: rollout_engine",
        lambda c: c["rollout_engine"] != "vllm",
        "rollout_engine {c[rollout_engine]}: Megatron-SWIFT generates with vllm only",
    ),
    forbid(  # lines 258 to 295
        "swift_megatron_updates: steps_per_generation | batch",
        lambda c: min(c.batch.accumulation, c.batch.steps) >= 1 and c.batch.steps % c.batch.accumulation,
        "steps_per_generation {c.batch.steps} is no multiple of gradient_accumulation_steps {c.batch.accumulation}: "
        "a generation of Megatron-SWIFT serves whole updates",
    ),
    swift_megatron_prompts,
    forbid(  # ``trainers/grpo_trainer.py:1357``
        "swift_megatron_rows: steps_per_generation micro_batch_size | batch",
        lambda c: c.batch.rollout_rows % c.training_gpus,
        "{c.batch.rollout_rows} rows of a generation are not divisible by {c.trainers}, which generate them",
    ),
    forbid(  # ``trainers/grpo_trainer.py:285``
        "swift_megatron_logprobs: logprob_rows | batch",
        lambda c: (rows := c.number("logprob_rows")) is not None and rows < c.batch.micro,
        "logprob_rows {c[logprob_rows]} is less than micro-batch {c.batch.micro}, by which Megatron-SWIFT computes "
        "log-probs",
    ),
    swift_megatron_stages,
)


def _with_engine(each: Rule) -> Rule:
    return replace(each, reads=each.reads | {ENGINE})


RULES = (
    *only(lambda c: c.megatron, *map(_with_engine, OF_MEGATRON)),
    *only(lambda c: c.megatron and c.framework == "ms_swift", *map(_with_engine, OF_SWIFT)),
)
