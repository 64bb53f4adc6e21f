"""Rules of Megatron-Core, for every framework that trains with Megatron, and of Megatron-SWIFT on top of them.

Read in ``megatron/core`` of Megatron-LM: ``parallel_state.py`` (``initialize_model_parallel``), ``transformer/
transformer_config.py`` (``__post_init__``), ``transformer/moe``; and in ``verl/workers/engine/megatron``. Line numbers
of Megatron-SWIFT (``megatron rlhf`` of ms-swift 4.6) are of ``swift/megatron/arguments/megatron_args.py``.
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
"""Knobs of PyTorch's modules that Megatron's modules ignore."""
SWIFT_TORCH_ONLY = (
    *("zero_stage", "tf32", "attn_implementation", "checkpointing_reentrant", "empty_cache_steps", "ddp_bucket_mib"),
    *("weight_sync_batches", "async_generation"),
)
"""Further knobs that Megatron-SWIFT ignores: nothing below ``swift/megatron`` (4.6) reads their arguments."""
RANKS = frozenset({*COMPARED, *MODEL_PARALLEL})
"""Knobs that decide the rows of each rank."""


def of_megatron(
    reads: tuple[str, ...] | frozenset[str], remedies: tuple[str, ...]
) -> Callable[[Callable[[Case], str | None]], Rule]:
    """Makes a rule that judges only configurations that train with Megatron."""

    def make(judge: Callable[[Case], str | None]) -> Rule:
        def limited(case: Case) -> str | None:
            return judge(case) if case.megatron else None

        limited.__name__, limited.__doc__ = judge.__name__, judge.__doc__
        return rule(frozenset({ENGINE, *reads}), remedies)(limited)

    return make


@of_megatron(RANKS, MODEL_PARALLEL)
def megatron_world(case: Case) -> str | None:
    """Requires training GPUs divisible by the product of tensor, pipeline and context parallel sizes."""
    sizes = [case.at_least_one(name) for name in (TENSOR, PIPELINE, CONTEXT)]
    if case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{TENSOR} {sizes[0]} × {PIPELINE} {sizes[1]} × {CONTEXT} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@of_megatron(frozenset({*RANKS, EXPERT, EXPERT_TENSOR}), (EXPERT, EXPERT_TENSOR))
def megatron_expert_world(case: Case) -> str | None:
    """Requires training GPUs divisible by the product of expert, expert tensor and pipeline parallel sizes."""
    tensor = case.number(EXPERT_TENSOR)
    sizes = [case.at_least_one(EXPERT), tensor or case.at_least_one(TENSOR), case.at_least_one(PIPELINE)]
    if (sizes[0] == 1 and tensor is None) or case.training_gpus % math.prod(sizes) == 0:
        return None
    text = f"{EXPERT} {sizes[0]} × {EXPERT_TENSOR} {sizes[1]} × {PIPELINE} {sizes[2]} = {math.prod(sizes)}"
    return f"{text} does not divide {case.ranks_in_words(case.training_gpus)}"


@of_megatron((EXPERT, EXPERT_TENSOR), (EXPERT,))
def megatron_experts(case: Case) -> str | None:
    """Requires a model with experts for expert parallelism, and an even number of experts on each rank."""
    size, experts = case.at_least_one(EXPERT), case.resources.model.experts
    if size == 1 or experts is None or (experts and experts % size == 0):
        return None
    if not experts:
        return f"{EXPERT} {size} shares out experts, and the model has none"
    return f"the model's {experts} experts are not divisible by {EXPERT} {size}"


@of_megatron((TENSOR, SEQUENCE), (SEQUENCE,))
def megatron_expert_tokens(case: Case) -> str | None:
    """Requires sequence parallelism for experts with tensor parallelism (``transformer/moe``)."""
    if case.at_least_one(TENSOR) == 1 or not case.resources.model.experts or case.get(SEQUENCE) is not False:
        return None
    return f"{SEQUENCE} false: Megatron trains experts with {TENSOR} above 1 only where tokens are shared out too"


@of_megatron((TENSOR,), (TENSOR,))
def megatron_heads(case: Case) -> str | None:
    """Requires attention heads divisible by the tensor parallel size; key-value heads divide it or the reverse."""
    size, model = case.at_least_one(TENSOR), case.resources.model
    heads, keys = model.attention_heads, model.key_value_heads
    if heads and heads % size:
        return f"the model's {heads} attention heads are not divisible by {TENSOR} {size}"
    if keys and keys % size and size % keys:
        return f"neither of the model's {keys} key-value heads and {TENSOR} {size} divides the other"
    return None


@of_megatron((PIPELINE, VIRTUAL, FIRST, LAST), (PIPELINE, VIRTUAL, FIRST, LAST))
def megatron_layers(case: Case) -> str | None:
    """Requires equal layers in each stage and virtual stage; the first and the last may have their own number."""
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
    """Requires micro-batches in multiples of the stages with virtual stages; a token budget pads to that."""
    stages, batch = case.at_least_one(PIPELINE), case.batch
    if case.at_least_one(VIRTUAL) == 1 or case.get("dynamic_batching") is True or batch.accumulation % stages == 0:
        return None
    return (
        f"gradient_accumulation_steps {batch.accumulation} is not divisible by {PIPELINE} {stages}, "
        f"which {VIRTUAL} {case.at_least_one(VIRTUAL)} asks for"
    )


@of_megatron((GRANULARITY, METHOD, RECOMPUTED), (METHOD, RECOMPUTED, GRANULARITY))
def megatron_recompute(case: Case) -> str | None:
    """Requires a method and a number of layers for full recomputation."""
    if case.get(GRANULARITY) != "full":
        return None
    lacking = [n for n in (METHOD, RECOMPUTED) if case.get(n) in (None, "none", 0)]
    return f"{GRANULARITY} full needs {' and '.join(lacking)}" if lacking else None


@of_megatron(("precision",), ("precision",))
def megatron_precision(case: Case) -> str | None:
    """Requires bf16 or fp16: Megatron trains in half precision, with fp32 copies."""
    precision = case.get("precision")
    return None if precision in (None, "bf16", "fp16") else f"precision {precision}: with Megatron it is bf16 or fp16"


def _rests(name: str) -> Rule:
    @of_megatron((name,), (name, ENGINE))
    def megatron_rests(case: Case) -> str | None:
        """Refuses setting a knob of PyTorch's modules with Megatron."""
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


@of_megatron(("rollout_engine",), ("rollout_engine",))
def swift_megatron_engine(case: Case) -> str | None:
    """Requires vLLM as the rollout engine (line 460)."""
    engine = case.get("rollout_engine")
    return None if engine == "vllm" else f"rollout_engine {engine}: Megatron-SWIFT generates with vllm only"


@of_megatron(COMPARED, ("steps_per_generation",))
def swift_megatron_updates(case: Case) -> str | None:
    """Requires a generation to serve whole updates (lines 258 to 295)."""
    batch = case.batch
    if batch.accumulation < 1 or batch.steps < 1 or batch.steps % batch.accumulation == 0:
        return None
    return (
        f"steps_per_generation {batch.steps} is no multiple of gradient_accumulation_steps {batch.accumulation}: "
        "a generation of Megatron-SWIFT serves whole updates"
    )


@of_megatron(RANKS, ("steps_per_generation", "micro_batch_size", "num_generations"))
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


@of_megatron(RANKS, ("steps_per_generation", "micro_batch_size"))
def swift_megatron_rows(case: Case) -> str | None:
    """Requires the rows of a generation to divide over the training GPUs (``trainers/grpo_trainer.py:1357``)."""
    rows, gpus = case.batch.rollout_rows, case.training_gpus
    if rows % gpus == 0:
        return None
    return f"{rows} rows of a generation are not divisible by {case.ranks_in_words(gpus)}, which generate them"


@of_megatron(("logprob_rows", *COMPARED), ("logprob_rows",))
def swift_megatron_logprobs(case: Case) -> str | None:
    """Requires ``logprob_rows`` of at least the micro-batch (``trainers/grpo_trainer.py:285``)."""
    rows, micro = case.number("logprob_rows"), case.batch.micro
    if rows is None or rows >= micro:
        return None
    return f"logprob_rows {rows} is less than micro-batch {micro}, by which Megatron-SWIFT computes log-probs"


@of_megatron((PIPELINE, FIRST, LAST), (FIRST, LAST, PIPELINE))
def swift_megatron_stages(case: Case) -> str | None:
    """Allows own layers of the first and last stage only with several stages (line 887)."""
    if case.at_least_one(PIPELINE) > 1:
        return None
    own = next((name for name in (FIRST, LAST) if case.number(name)), "")
    return f"{own} {case.number(own)} needs {PIPELINE} above 1" if own else None


RULES += tuple(only("ms_swift", each) for each in rules_in(globals()) if each not in RULES)
