"""Which values of which knob are held against the reference, how closely, and which knobs are left out and why."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from tests.parity.comparison import Tolerance
from tests.parity.running import ROWS, Case

BITS = Tolerance(loss=1e-12, gradient=1e-12, cosine=1e-12, step=1e-12)
"""The same operations in the same order."""
ORDER = Tolerance(loss=1e-5, gradient=2e-5, cosine=1e-9, step=5e-5)
"""The same sums in another order, in fp32: seven digits, of which accumulation and a second update cost two."""
WEIGHED = Tolerance(loss=1e-4, gradient=1e-4, cosine=1e-8, step=2e-4)
"""Besides, each row is weighed by the exponential of a difference of log-probs, summed over its tokens."""

TOLERANCES: Mapping[str, tuple[Tolerance, str]] = {
    "micro_batch_size": (ORDER, "gradients are summed over other groups of rows"),
    "gradient_accumulation_steps": (ORDER, "as micro_batch_size, from which it follows"),
    "logprob_rows": (ORDER, "matrix products of another height"),
    "logprob_token_chunk": (ORDER, "the head's gradient is summed tile by tile"),
    "logprob_vocab_chunk": (ORDER, "the sum over the vocabulary is taken tile by tile"),
    "gradient_checkpointing": (BITS, "the forward pass is done again as it was"),
    "checkpointing_reentrant": (BITS, "as gradient_checkpointing"),
    "attn_implementation": (ORDER, "softmax and products in another order"),
    "optimizer": (ORDER, "one kernel instead of several; its rounding shows in the second gradient"),
    "pad_to_multiple": (ORDER, "sums over more, masked, columns"),
    "empty_cache_steps": (BITS, "nothing is computed"),
    "dataloader_workers": (BITS, "nothing is computed"),
    "host_allocator": (BITS, "nothing is computed"),
    "torch_compile": (ORDER, "fused kernels round in other places"),
    "ddp_bucket_mib": (ORDER, "gradients are summed over ranks"),
    "zero_stage": (ORDER, "gradients are summed over ranks, the optimizer works on pieces"),
    "zero_overlap": (ORDER, "as zero_stage"),
    "zero_contiguous_gradients": (ORDER, "as zero_stage"),
    "zero_reduce_bucket": (ORDER, "as zero_stage, in other pieces"),
    "zero_allgather_bucket": (ORDER, "as zero_stage, in other pieces"),
    "zero_prefetch_bucket": (ORDER, "as zero_stage, in other pieces"),
    "zero3_gather_for_generation": (ORDER, "as zero_stage; the completions are compared too"),
    "rollout_engine": (WEIGHED, "TRL corrects rows by the log-probs the engine gives them"),
    "continuous_batching": (ORDER, "the update is the same; the completions are compared too"),
    "continuous_batching_memory": (ORDER, "as continuous_batching"),
    "max_model_len": (WEIGHED, "as rollout_engine"),
    "max_num_seqs": (WEIGHED, "as rollout_engine"),
    "max_num_batched_tokens": (WEIGHED, "as rollout_engine"),
    "prefix_caching": (WEIGHED, "as rollout_engine"),
    "chunked_prefill": (WEIGHED, "as rollout_engine"),
    "kv_cache_memory_bytes": (WEIGHED, "as rollout_engine"),
    "rollout_load_format": (WEIGHED, "as rollout_engine"),
}
"""Knob -> how closely the update has to agree, and why no closer; of several the loosest counts."""

LOGP = 1e-4
"""Largest |log-prob of the engine - log-prob of the trainer| of any token, both in fp32.

Sums in another order: about 1e-5 is seen. An update moves some token's by more than 1.
"""

_GPU = "not yet measured on a GPU"
LEFT_OUT: Mapping[str, str] = {
    "expandable_segments": "places memory on a GPU: not yet measured on a GPU",
    **dict.fromkeys(("fsdp", "fsdp_reshard_after_forward", "fsdp_offload"), f"FSDP2 needs a GPU: {_GPU}"),
    **dict.fromkeys(("offload_optimizer", "offload_parameters", "activation_offload"), f"moves from a GPU: {_GPU}"),
    "training_gpus": f"how many GPUs train: {_GPU}",
    **dict.fromkeys(("rollout_mode", "rollout_gpus", "rollout_data_parallel_size"), f"a server has a GPU: {_GPU}"),
    **dict.fromkeys(("gpu_memory_utilization", "tensor_parallel_size", "custom_all_reduce"), _GPU),
    **dict.fromkeys(("enforce_eager", "cuda_graph_max_batch", "vllm_compile_mode"), f"CUDA graphs: {_GPU}"),
    "torch_compile_mode": f"its modes differ in CUDA graphs and in Triton's tuning: {_GPU}",
    **dict.fromkeys(
        ("speculative_decoding", "speculative_tokens", "speculative_lookup"),
        f"on a CPU vLLM's log-probs after a rejected guess are wrong, and no trial guesses there: {_GPU}",
    ),
    "sleep_level": f"frees GPU memory: {_GPU}",
    "hub_kernels": f"kernels for GPUs, fetched from the hub: {_GPU}",
    "fp8_emulate": f"against real FP8 arithmetic: {_GPU}",
}
"""Speed knobs a trial can set that have no case, and why."""
VALUES_LEFT_OUT: Mapping[str, Mapping[KnobValue, str]] = {
    "attn_implementation": dict.fromkeys(("flash_attention_2", "flash_attention_3"), _GPU),
    "optimizer": {"paged_adamw_32bit": _GPU},
    "rollout_engine": {"sglang": "TRL has no such engine"},
    "rollout_load_format": dict.fromkeys(
        KNOBS["rollout_load_format"].others, "the same weights from a file of another kind, or from elsewhere"
    ),
}


def _each(knob: str, *values: KnobValue, **beside: KnobValue) -> tuple[Case, ...]:
    return tuple(Case(f"{knob}-{value}", {knob: value, **beside}) for value in values)


REFERENCE = Case("reference")
CORE: tuple[Case, ...] = (
    *_each("micro_batch_size", 1, 2, 4, 8),
    *_each("logprob_rows", 1, 3, 5),
    *_each("logprob_token_chunk", 16, 37, 100),
    *_each("logprob_vocab_chunk", 128, 150, 200),
    *_each("gradient_checkpointing", True),
    *_each("attn_implementation", "eager"),
    *_each("optimizer", "adamw_torch_fused"),
    *_each("pad_to_multiple", 7, 16, 64),
    *_each("empty_cache_steps", 1),
    *_each("dataloader_workers", 1, 2),
    Case("checkpointing_reentrant-True", {"gradient_checkpointing": True, "checkpointing_reentrant": True}),
    Case(
        "everything",
        {
            "micro_batch_size": 4,
            "logprob_rows": 3,
            "logprob_token_chunk": 37,
            "logprob_vocab_chunk": 150,
            "gradient_checkpointing": True,
            "attn_implementation": "eager",
            "optimizer": "adamw_torch_fused",
            "pad_to_multiple": 7,
            "dataloader_workers": 1,
        },
    ),
)
"""One process, quick enough for ``make test``."""

STARTED: tuple[Case, ...] = _each("host_allocator", "keep", "keep_huge_pages")
"""Each in a process of its own, which is started with it."""

COMPILED: tuple[Case, ...] = _each("torch_compile", True)
"""One process; most of it is the C++ compiler's time."""

GREEDY = {"top_k": 1, "beta": 0.0}
"""The most likely token at each place, so that completions can be compared; no reference model, of which ZeRO would
make an engine of its own."""
GENERATED = Case("generated", objective=GREEDY, ask=True)


def _asked(name: str, **knobs: KnobValue) -> Case:
    return Case(name, knobs, GREEDY, ask=True, against=GENERATED.name)


BATCHED: tuple[Case, ...] = (
    _asked("continuous_batching-0.002", continuous_batching=True, continuous_batching_memory=0.002),
    _asked("continuous_batching-0.01", continuous_batching=True, continuous_batching_memory=0.01),
)
"""One process; transformers fills the places of completions that have ended."""

_PER_RANK: Mapping[str, KnobValue] = {"micro_batch_size": ROWS // 4}
TWO_RANKS: tuple[Case, ...] = (
    Case("two-ranks", _PER_RANK),
    Case("ddp_bucket_mib-1", {**_PER_RANK, "ddp_bucket_mib": 1}),
)


def _zero(stage: int, **knobs: KnobValue) -> Case:
    name = "-".join([f"zero-{stage}", *(f"{knob}-{value}" for knob, value in knobs.items())])
    return Case(name, {**_PER_RANK, "zero_stage": stage, **knobs}, GREEDY, ask=stage == 3, against=GENERATED.name)


ZERO: tuple[Case, ...] = (
    _zero(1),
    _zero(2),
    _zero(3),
    _zero(2, zero_overlap=False, zero_contiguous_gradients=False),
    _zero(2, zero_reduce_bucket=5_000, zero_allgather_bucket=5_000),
    _zero(3, zero_prefetch_bucket=0),
    _zero(3, zero3_gather_for_generation=False),
)
"""Two ranks, started by ``torchrun``."""

_MIB = 1 << 20
ENGINE: Mapping[str, KnobValue] = {
    "rollout_engine": "vllm",
    "rollout_dtype": "fp32",
    "max_model_len": 512,
    "max_num_seqs": ROWS,
    "max_num_batched_tokens": 4096,
    "prefix_caching": True,
    "chunked_prefill": True,
    "kv_cache_memory_bytes": 64 * _MIB,
}
LONG = "long.jsonl"
"""Prompts that come again in every update, so that a prefix remembered from older weights would be met."""
ENGINES: tuple[Case, ...] = (
    Case("long", prompts=LONG),
    Case("rollout_engine-vllm", ENGINE, prompts=LONG, ask=True, against="long"),
    Case(
        "narrow",
        {
            **ENGINE,
            "max_model_len": 256,
            "max_num_seqs": 3,
            "max_num_batched_tokens": 300,
            "prefix_caching": False,
            "chunked_prefill": False,
            "kv_cache_memory_bytes": 2 * _MIB,
            "rollout_load_format": "dummy",
        },
        prompts=LONG,
        ask=True,
        against="long",
    ),
    Case("pieces", {**ENGINE, "max_num_batched_tokens": 64}, prompts=LONG, ask=True, against="long"),
)
"""One process with vLLM. It computes in fp32 like the trainer, so that nothing but the sync can part them."""
STALE: tuple[Case, ...] = tuple(
    Case(fault, ENGINE, fault=fault, prompts=LONG, ask=True, against="long")
    for fault in ("stale_weights", "kept_prefixes")
)

WRONG: tuple[Case, ...] = tuple(
    Case(fault, {"micro_batch_size": 4}, fault=fault)
    for fault in ("mean_of_means", "divided_twice", "lost_micro_batch")
)
"""Accumulation that is wrong on purpose."""


def tolerance(case: Case) -> Tolerance:
    """The loosest of the knobs a case sets."""
    found = [TOLERANCES[knob][0] for knob in case.knobs if knob in TOLERANCES] or [BITS]
    return max(found, key=lambda each: each.gradient)
