"""Rules of Megatron-Core, for every framework that trains with it.

Read in ``megatron/core`` of Megatron-LM: ``parallel_state.py`` (``initialize_model_parallel``), ``transformer/
transformer_config.py`` (``__post_init__``), ``transformer/moe``; and in ``verl/workers/engine/megatron``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from search_spaces.batch import MODEL_PARALLEL
from search_spaces.knobs import KNOBS
from search_spaces.knobs.megatron import ENGINE
from search_spaces.legality.case import COMPARED, Case, Rule, only, rule, rules_in

TENSOR, PIPELINE, VIRTUAL = "training_tensor_parallel_size", "pipeline_parallel_size", "virtual_pipeline_size"
CONTEXT, EXPERT, EXPERT_TENSOR = "sequence_parallel_size", "expert_parallel_size", "expert_tensor_parallel_size"
FIRST, LAST, SEQUENCE = "first_stage_layers", "last_stage_layers", "megatron_sequence_parallel"
GRANULARITY, METHOD, RECOMPUTED = "recompute_granularity", "recompute_method", "recompute_layers"
TORCH_ONLY = (
    *("fsdp", "fsdp_reshard_after_forward", "fsdp_offload", "fsdp_forward_prefetch", "fsdp_sync_once"),
    *("master_weights", "reduce_precision", "optimizer", "gradient_checkpointing", "activation_offload"),
    *("hub_kernels", "torch_compile", "pad_to_multiple", "entropy_checkpointing", "weight_sync_layered"),
)
"""Knobs of PyTorch's modules, which Megatron's do not read."""
SWIFT_TORCH_ONLY = (
    *("zero_stage", "tf32", "attn_implementation", "checkpointing_reentrant", "empty_cache_steps", "ddp_bucket_mib"),
    *("weight_sync_batches", "async_generation"),
)
"""The same of ms-swift alone: nothing below ``swift/megatron`` (4.6) reads their arguments."""
RANKS = frozenset({*COMPARED, *MODEL_PARALLEL})
"""Knobs that decide which rank has which rows."""


def of_megatron(
    reads: tuple[str, ...] | frozenset[str], remedies: tuple[str, ...]
) -> Callable[[Callable[[Case], str | None]], Rule]:
    """A rule of configurations that train with Megatron."""

    def make(judge: Callable[[Case], str | None]) -> Rule:
        def limited(case: Case) -> str | None:
            return judge(case) if case.megatron else None

        limited.__name__, limited.__doc__ = judge.__name__, judge.__doc__
        return rule(frozenset({ENGINE, *reads}), remedies)(limited)

    return make


@of_megatron(RANKS, MODEL_PARALLEL)
def megatron_world(case: Case) -> str | None:
    """Tensor, pipeline and context parallel sizes together divide the training GPUs."""
    sizes = [case.at_least_one(name) for name in (TENSOR, PIPELINE, CONTEXT)]
    if case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{TENSOR} {sizes[0]} × {PIPELINE} {sizes[1]} × {CONTEXT} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@of_megatron(frozenset({*RANKS, EXPERT, EXPERT_TENSOR}), (EXPERT, EXPERT_TENSOR))
def megatron_expert_world(case: Case) -> str | None:
    """Expert, expert tensor and pipeline parallel sizes together divide the training GPUs."""
    tensor = case.number(EXPERT_TENSOR)
    sizes = [case.at_least_one(EXPERT), tensor or case.at_least_one(TENSOR), case.at_least_one(PIPELINE)]
    if (sizes[0] == 1 and tensor is None) or case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{EXPERT} {sizes[0]} × {EXPERT_TENSOR} {sizes[1]} × {PIPELINE} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@of_megatron((EXPERT, EXPERT_TENSOR), (EXPERT,))
def megatron_experts(case: Case) -> str | None:
    """Experts are shared out whole, and there are some."""
    size, experts = case.at_least_one(EXPERT), case.resources.model.experts
    if size == 1 or experts is None or (experts and experts % size == 0):
        return None
    if not experts:
        return f"{EXPERT} {size} shares out experts, and the model has none"
    return f"the model's {experts} experts are not divisible by {EXPERT} {size}"


@of_megatron((TENSOR, SEQUENCE), (SEQUENCE,))
def megatron_expert_tokens(case: Case) -> str | None:
    """Experts train on tokens that are shared out where matrices are (``transformer/moe``)."""
    if case.at_least_one(TENSOR) == 1 or not case.resources.model.experts or case.get(SEQUENCE) is not False:
        return None
    return f"{SEQUENCE} false: Megatron trains experts with {TENSOR} above 1 only where tokens are shared out too"


@of_megatron((TENSOR,), (TENSOR,))
def megatron_heads(case: Case) -> str | None:
    """Attention heads are shared out evenly; of key-value heads and GPUs one divides the other."""
    size, model = case.at_least_one(TENSOR), case.resources.model
    heads, keys = model.attention_heads, model.key_value_heads
    if heads and heads % size:
        return f"the model's {heads} attention heads are not divisible by {TENSOR} {size}"
    if keys and keys % size and size % keys:
        return f"neither of the model's {keys} key-value heads and {TENSOR} {size} divides the other"
    return None


@of_megatron((PIPELINE, VIRTUAL, FIRST, LAST), (PIPELINE, VIRTUAL, FIRST, LAST))
def megatron_layers(case: Case) -> str | None:
    """Each stage, and each part of a stage, has as many layers; the first and the last may have a number of their
    own."""
    stages, parts, layers = case.at_least_one(PIPELINE), case.at_least_one(VIRTUAL), case.resources.model.layers
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


@of_megatron(frozenset({*RANKS, VIRTUAL, "dynamic_batching"}), ("micro_batch_size", VIRTUAL))
def megatron_micro_batches(case: Case) -> str | None:
    """Stages in parts take micro-batches in groups of as many as there are stages; a budget of tokens is cut so."""
    stages, batch = case.at_least_one(PIPELINE), case.batch
    if case.at_least_one(VIRTUAL) == 1 or case.get("dynamic_batching") is True or batch.accumulation % stages == 0:
        return None
    return (
        f"gradient_accumulation_steps {batch.accumulation} is not divisible by {PIPELINE} {stages}, "
        f"which {VIRTUAL} {case.at_least_one(VIRTUAL)} asks for"
    )


@of_megatron((GRANULARITY, METHOD, RECOMPUTED), (METHOD, RECOMPUTED, GRANULARITY))
def megatron_recompute(case: Case) -> str | None:
    """Whole layers are computed again by a method and a number of layers."""
    if case.get(GRANULARITY) != "full":
        return None
    lacking = [n for n in (METHOD, RECOMPUTED) if case.get(n) in (None, "none", 0)]
    return f"{GRANULARITY} full needs {' and '.join(lacking)}" if lacking else None


@of_megatron(("precision",), ("precision",))
def megatron_precision(case: Case) -> str | None:
    """Megatron's engine trains in half precision, with copies in fp32."""
    precision = case.get("precision")
    return None if precision in (None, "bf16", "fp16") else f"precision {precision}: with Megatron it is bf16 or fp16"


def _rests(name: str) -> Rule:
    @of_megatron((name,), (name, ENGINE))
    def megatron_rests(case: Case) -> str | None:
        """A knob of PyTorch's modules is not set beside Megatron."""
        value = case.values.get(name)
        if value is None or value == KNOBS[name].inactive_value(case.framework, case.resources.device):
            return None
        return f"{name} {value} does nothing beside {ENGINE} megatron"

    return megatron_rests


RULES = (
    *rules_in(globals()),
    *(_rests(name) for name in TORCH_ONLY),
    *(only("ms_swift", _rests(name)) for name in SWIFT_TORCH_ONLY),
)
