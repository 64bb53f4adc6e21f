"""Rules of the rollout engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from search_spaces.configuration import COMPILER, NOT_THERE
from search_spaces.frameworks import TITLES
from search_spaces.knobs import defaults
from search_spaces.legality.case import COMPARED, Case, forbid, rule


@rule(("rollout_engine", "enforce_eager", "torch_compile"), ("enforce_eager", "torch_compile"))
def compiler_installed(case: Case) -> str | None:
    """Requires a C++ compiler for compiled models on a CPU."""
    if case.on_gpu or case.resources.software.get(COMPILER) != NOT_THERE:
        return None
    wanted = "enforce_eager false" if case.vllm and case.get("enforce_eager") is False else ""
    wanted = "torch_compile true" if case.get("torch_compile") is True else wanted
    return f"{wanted} needs a C++ compiler on this machine" if wanted else None


@rule(
    frozenset({*COMPARED, "tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens"}),
    ("micro_batch_size", "steps_per_generation", "max_num_seqs", "max_num_batched_tokens"),
)
def batched_tokens(case: Case) -> str | None:
    """Requires ``max_num_batched_tokens`` of at least ``max_num_seqs``: a token per sequence in an engine step."""
    tokens = case.number("max_num_batched_tokens")
    if not case.vllm or tokens is None:
        return None
    sequences = case.number("max_num_seqs")
    if sequences is not None:
        if sequences <= tokens:
            return None
        return f"max_num_seqs {sequences} is more than max_num_batched_tokens {tokens}"
    if case.server:
        return None
    batch, size = case.batch, case.at_least_one("tensor_parallel_size")
    steps = batch.accumulation if case.facts.sizes_engine_by_update else batch.steps
    # Ranks that share a sequence each generate their part of its micro-batches.
    steps = -(-steps // case.at_least_one("sequence_parallel_size"))
    sequences = batch.micro * size * steps
    if sequences <= tokens:
        return None
    factors = f"micro-batch {batch.micro} × tensor_parallel_size {size} × steps_per_generation {steps}"
    return f"{factors} = {sequences} sequences is more than the engine's max_num_batched_tokens {tokens}"


@rule(("rollout_engine", "max_model_len"), ("max_model_len",))
def model_length(case: Case) -> str | None:
    """Requires ``max_model_len`` between the longest prompt plus completion and the model's positions."""
    length = case.values.get("max_model_len")
    if not case.engine or not isinstance(length, int):
        return None
    needed, limit = _longest(case), case.resources.model.max_positions
    if needed is not None and length < needed:
        return f"max_model_len {length} is shorter than the {needed} tokens of prompt and completion"
    if limit is not None and length > limit:
        return f"max_model_len {length} is longer than the model's {limit} positions"
    return None


@rule(
    ("rollout_engine", "rollout_mode", "sleep_level", "expandable_segments"),
    ("expandable_segments", "sleep_level"),
)
def expandable_segments(case: Case) -> str | None:
    """Requires CUDA for expandable segments and, with vLLM before 0.20.1, an engine that does not sleep.

    Later versions disable the segments around their memory pool (vllm/device_allocator/cumem.py:380); ms-swift does so
    itself (swift/rlhf_trainers/rollout_mixin.py:502).
    """
    if case.get("expandable_segments") is not True:
        return None
    if not case.on_gpu:
        return "expandable_segments acts on CUDA's allocator, and this is a CPU run"
    level = case.number("sleep_level") or 0
    if not case.colocated or level == 0 or case.facts.stops_expandable_segments or not case.vllm_before(0, 20, 1):
        return None
    return f"expandable_segments cannot be used with sleep_level {level}: vLLM before 0.20.1 refuses it"


@rule(("rollout_engine", "rollout_mode"), ("rollout_mode", "rollout_engine"))
def quantized_weights(case: Case) -> str | None:
    """Requires an engine built for packed weights if the model is loaded in 4 or 8 bit.

    TRL and Open-R1 send ``param.data``, which is packed (TRL 1.16 trl/generation/vllm_generation.py:445). TRL builds a
    colocated engine for 4 bit and refuses 8 (:337); TRL 0.18 builds it for neither (trl/trainer/grpo_trainer.py:647);
    ms-swift for 4 (swift/rlhf_trainers/rollout_mixin.py:496).
    """
    loaded = case.resources.quantized
    if not case.vllm or not loaded:
        return None
    title, colocated = TITLES.get(case.framework, case.framework), loaded in case.facts.quantizes_engine
    if not case.server:
        why = f"{title} builds no engine for packed weights of {loaded}"
        return None if colocated else f"{_loading(case)} cannot be used with rollout_engine vllm: {why}"
    if not case.facts.sends_packed_weights:
        return None
    takes = "only a colocated engine takes" if colocated else "vLLM cannot load"
    return f"{_loading(case)} cannot be used with rollout_mode server: {title} sends packed weights, which {takes}"


def _loading(case: Case) -> str:
    """Returns the user's key that loads the model in 4 or 8 bit, for messages."""
    bits = case.resources.quantized.split()[0]
    return f"quant_bits {bits}" if case.framework == "ms_swift" else f"load_in_{bits}bit"


UNMERGED = "adapters cannot be merged into packed shards"
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes that vLLM's attention supports on a CPU (0.31, vllm/v1/attention/backends/cpu_attn.py:69)."""


@rule(("rollout_engine", "rollout_mode", "rollout_quantization", "kv_cache_dtype"), ("rollout_quantization",))
def engine_fp8(case: Case) -> str | None:
    """Requires compute capability 8.9 or later for FP8 in the engine."""
    if not case.engine:
        return None
    quantized = case.get("rollout_quantization") == "fp8"
    cached = str(case.get("kv_cache_dtype") or "auto").startswith("fp8")
    if not (quantized or cached) or not case.older_than(8, 9):
        return None
    what = "rollout_quantization fp8" if quantized else f"kv_cache_dtype {case.get('kv_cache_dtype')}"
    return f"{what} needs compute capability 8.9 or later, and this GPU has {case.capability}"


@rule(
    ("dynamic_batching", "update_tokens", "logprob_tokens", "sequence_parallel_size"),
    ("update_tokens", "logprob_tokens"),
)
def token_budget(case: Case) -> str | None:
    """Requires token budgets of at least the longest sequence; ranks that share a sequence add their budgets."""
    needed, sharing = _longest(case), case.at_least_one("sequence_parallel_size")
    if needed is None or case.get("dynamic_batching") is not True:
        return None
    for name in ("update_tokens", "logprob_tokens"):
        tokens = case.number(name)
        if tokens is not None and tokens * sharing < needed:
            budget = f"{name} {tokens}" + (f" of {sharing} ranks" if sharing > 1 else "")
            return f"{budget} is fewer than the {needed} tokens of the longest prompt and completion"
    return None


@rule(("speculative_decoding", "speculative_tokens", "rollout_engine"), ("speculative_tokens", "speculative_decoding"))
def guessed_tokens(case: Case) -> str | None:
    """Requires a GPU, ``speculative_tokens`` and compatible user keys for speculative decoding.

    On a CPU vLLM 0.31 gave 59 of 1,024 tokens log-probs up to 4.2 away from the model's: those sampled after a rejected
    proposal. Greedy tokens are right, and so are all tokens without speculation.
    """
    if not case.vllm or case.get("speculative_decoding") in (None, "none"):
        return None
    if not case.on_gpu:
        return "speculative_decoding needs a GPU: on a CPU vLLM's log-probs after a rejected guess are not the model's"
    if case.resources.not_guessed:
        return f"speculative_decoding cannot be used with {case.resources.not_guessed}"
    if case.values.get("speculative_tokens") is None:
        return "speculative_decoding needs speculative_tokens, for which vLLM has no default"
    return None


def _shares_gpu(case: Case) -> bool:
    """Tells whether ``gpu_memory_utilization`` differs from the framework's default."""
    name = "gpu_memory_utilization"
    return case.values.get(name) not in (None, defaults(case.framework).get(name))


def _joined(words: Sequence[object]) -> str:
    return " and ".join(filter(None, (", ".join(map(str, words[:-1])), str(words[-1]))))


def _longest(case: Case) -> int | None:
    prompt, completion = case.resources.max_prompt_length, case.resources.max_completion_length
    return None if prompt is None or completion is None else prompt + completion


RULES = (
    forbid(
        "rollout_engine: rollout_engine",
        lambda c: c["rollout_engine"] not in (None, *c.facts.generates_with),
        lambda c: (
            f"{c.framework} has no rollout_engine {c['rollout_engine']}; it has {_joined(c.facts.generates_with)}"
        ),
    ),
    forbid(
        "engine_installed: rollout_engine",
        lambda c: c.engine and c.lacks(str(c["rollout_engine"]), f"{c['rollout_engine']}_cpu"),
        "rollout_engine {c[rollout_engine]} needs the package {c[rollout_engine]} in the training environment",
    ),
    compiler_installed,
    forbid(
        "cache_share: | rollout_engine gpu_memory_utilization",
        lambda c: c.engine and not c.on_gpu and _shares_gpu(c),
        "gpu_memory_utilization {c[gpu_memory_utilization]} is a share of a GPU, and this is a CPU run; "
        "use kv_cache_memory_bytes",
    ),
    # vLLM 0.31 (``CacheConfig``): "when not-None, ignores gpu_memory_utilization". Trials that differ in the share
    # alone would measure the same engine.
    forbid(
        "one_cache_size: gpu_memory_utilization | rollout_engine kv_cache_memory_bytes",
        lambda c: c.vllm and c.on_gpu and c.values.get("kv_cache_memory_bytes") is not None and _shares_gpu(c),
        "kv_cache_memory_bytes {c[kv_cache_memory_bytes]} is the size of the KV cache, for which vLLM ignores "
        "gpu_memory_utilization {c[gpu_memory_utilization]}; leave one of them unset",
    ),
    batched_tokens,
    forbid(
        "whole_prefill: chunked_prefill max_num_batched_tokens max_model_len | rollout_engine",
        lambda c: (
            (c.vllm and c["chunked_prefill"] is False and not c.facts.raises_batched_tokens)
            and (c.number("max_num_batched_tokens") or math.inf) < (c.number("max_model_len") or 0)
        ),
        "without chunked_prefill, max_num_batched_tokens {c[max_num_batched_tokens]} must be at least max_model_len "
        "{c[max_model_len]}",
    ),
    model_length,
    # Continuous batching rounds the weights for good.
    forbid(
        "batched_weights: continuous_batching master_weights precision | rollout_engine",
        lambda c: (
            (not c.engine and c["continuous_batching"] is True)
            and (c["precision"], c["master_weights"]) != ("fp8", "bf16")
            and c["precision"] != c["master_weights"]
        ),
        "continuous_batching rounds master_weights {c[master_weights]} to what precision {c[precision]} computes in, "
        "for good",
    ),
    forbid(
        "sleep_mode: sleep_level | rollout_engine rollout_mode",
        lambda c: c.colocated and c.number("sleep_level") and not c.on_gpu,
        "sleep_level {c[sleep_level]} frees GPU memory, and this is a CPU run",
    ),
    expandable_segments,
    forbid(  # on a GPU tensors are not in host memory
        "host_allocator: | host_allocator",
        lambda c: c.on_gpu and c["host_allocator"] not in (None, "default"),
        "host_allocator {c[host_allocator]} is for runs on a CPU, and this one is on a GPU",
    ),
    quantized_weights,
    forbid(  # adapters are merged into whole weights first (TRL#5975)
        "quantized_shards: fsdp rollout_engine",
        lambda c: c.vllm and c.resources.quantized and c["fsdp"] == "fsdp2" and not c.facts.merges_in_shards,
        lambda c: f"{_loading(c)} cannot be used with fsdp fsdp2 and rollout_engine vllm: {UNMERGED}",
    ),
    forbid(
        "cpu_head_size: rollout_engine",
        lambda c: c.vllm and not c.on_gpu and c.model.head not in (None, *CPU_HEAD_SIZES),
        "the model's attention heads have {c.model.head} values each, and vLLM on a CPU takes "
        + _joined(CPU_HEAD_SIZES),
    ),
    engine_fp8,
    token_budget,
    guessed_tokens,
)
