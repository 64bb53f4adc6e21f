"""Inside the rollout engine: scheduling, graphs, compilation, caches."""

from __future__ import annotations

from functools import partial

from search_spaces.configuration import KnobValue
from search_spaces.knobs.build import (
    ENGINE,
    GENERATE,
    IN_VERL,
    OF_SWIFT,
    OF_VERL,
    SYNC,
    VLLM,
    cache,
    choice,
    device,
    engine_settings,
    native,
    number,
    seam,
    switch,
)
from search_spaces.knobs.model import Effect, Restart, Setting

_number = partial(number, phases=GENERATE, restart=Restart.ENGINE)
_switch = partial(switch, phases=GENERATE, restart=Restart.ENGINE)
_choice = partial(choice, phases=GENERATE, restart=Restart.ENGINE)
_SPECULATES: dict[str, tuple[KnobValue, ...]] = {**VLLM, "speculative_decoding": ("ngram",)}


def _inside(mapping: str, key: str, default: KnobValue | None = None) -> dict[str, Setting]:
    """Returns settings for ``key`` inside the engine argument ``mapping``, which vLLM takes whole."""
    written = f"{mapping}={{'{key}': ...}}"
    return engine_settings(f"{mapping}.{key}", default, verl=IN_VERL, seam_argument=written)


KNOBS = (
    _number(
        name="max_model_len",
        unit="tokens",
        memory=(*device(1), *cache(1)),
        bounds=(16, 16777216),
        needs=ENGINE,
        inactive=32768,
        frameworks={
            "trl": native("vllm_max_model_length"),
            "open_r1": seam("trl.trainer.grpo_trainer.LLM(max_model_len=...)"),
            "ms_swift": native("vllm_max_model_len"),
            "verl": native(OF_VERL + "max_model_len"),
        },
        summary="longest sequence the engine prepares for; at least prompt + completion",
    ),
    _number(
        name="max_num_seqs",
        unit="sequences",
        memory=(*device(1), *cache(1)),
        bounds=(1, 65536),
        needs=ENGINE,
        inactive=256,
        frameworks=engine_settings("max_num_seqs", swift=OF_SWIFT, own={"verl": 256}),
        summary="sequences decoded together",
    ),
    _number(
        name="max_num_batched_tokens",
        unit="tokens",
        memory=(*device(1), *cache(1)),
        bounds=(1, 16777216),
        needs=VLLM,
        inactive=8192,
        frameworks=engine_settings("max_num_batched_tokens", own={"trl": 4096, "verl": 8192}),
        summary="tokens of one engine step, prefill included",
    ),
    _switch(
        name="enforce_eager",
        memory=device(-1),
        needs=ENGINE,
        without_gpu=True,
        frameworks=engine_settings("enforce_eager", False, swift=OF_SWIFT),
        summary="no CUDA graphs and no compilation: less memory, quicker start, slower decoding",
    ),
    _number(
        name="cuda_graph_max_batch",
        unit="sequences",
        memory=device(1),
        bounds=(1, 65536),
        needs={**VLLM, "enforce_eager": (False,)},
        inactive=512,
        frameworks=_inside("compilation_config", "max_cudagraph_capture_size"),
        summary="CUDA graphs are captured for batches up to this size",
    ),
    _choice(
        name="vllm_compile_mode",
        memory=device(0),
        order=("none", "stock_torch_compile", "dynamo_trace_once", "vllm_compile"),
        needs={**VLLM, "enforce_eager": (False,)},
        frameworks=_inside("compilation_config", "mode", "vllm_compile"),
        summary="how vLLM compiles the model",
    ),
    _switch(
        name="prefix_caching",
        memory=cache(0),
        needs=VLLM,
        frameworks=engine_settings("enable_prefix_caching", True, swift=OF_SWIFT),
        summary="a group's common prompt is computed once",
    ),
    _switch(
        name="chunked_prefill",
        memory=(*device(0), *cache(0)),
        needs=VLLM,
        frameworks=engine_settings("enable_chunked_prefill", True),
        summary="long prompts are computed in pieces beside decoding",
    ),
    _choice(
        name="kv_cache_dtype",
        effect=Effect.NUMERICS,
        memory=cache(1),
        order=("fp8", "auto"),
        others=("fp8_e4m3", "fp8_e5m2"),
        needs=VLLM,
        frameworks=engine_settings("kv_cache_dtype", "auto", verl=IN_VERL),
        summary="what keys and values are kept in",
    ),
    _choice(
        name="rollout_dtype",
        effect=Effect.NUMERICS,
        phases=GENERATE | SYNC,
        memory=(*device(1), *cache(1)),
        order=("bf16", "fp16", "fp32"),
        others=("auto",),
        needs=ENGINE,
        # ms-swift gives its engine the model's own dtype, and refuses another among the engine's arguments
        # (swift/infer_engine/vllm_engine.py, _prepare_engine_kwargs).
        frameworks=engine_settings("dtype", "auto", swift="", own={"verl": "bf16"}),
        summary="what the engine computes in",
    ),
    _choice(
        name="rollout_load_format",
        phases=frozenset(),
        order=("auto", "dummy"),
        others=(
            *("hf", "safetensors", "pt", "npcache", "mistral", "bitsandbytes", "gguf", "sharded_state", "tensorizer"),
            *("fastsafetensors", "instanttensor", "ipc_cache", "modelexpress", "runai_streamer"),
            "runai_streamer_sharded",
        ),  # LoadFormats of vLLM 0.8 to 0.31 (vllm/model_executor/model_loader/__init__.py)
        needs=ENGINE,
        frameworks=engine_settings("load_format", "auto", own={"verl": "dummy"}),
        summary="the engine reads weights at start, or waits for the first sync",
    ),
    _switch(
        name="custom_all_reduce",
        memory=device(1),
        needs=VLLM,
        frameworks=engine_settings(
            "disable_custom_all_reduce", True, swift=OF_SWIFT, verl=IN_VERL, own={"ms_swift": False}
        ),
        summary="vLLM's own all-reduce between the GPUs of a replica",
    ),
    _choice(
        name="speculative_decoding",
        # What is guessed is kept with the probability that the model gives it, so completions are drawn as without
        # (vLLM 0.31, vllm/v1/sample/rejection_sampler.py:49).
        effect=Effect.SPEED,
        memory=(*device(1), *cache(1)),
        order=("none", "ngram"),
        needs=VLLM,
        frameworks=_inside("speculative_config", "method", "none"),
        summary="the next tokens are guessed from what stands earlier in the sequence, and checked together",
    ),
    _number(
        name="speculative_tokens",
        unit="tokens",
        memory=(*device(1), *cache(1)),
        bounds=(1, 64),
        needs=_SPECULATES,
        inactive=4,
        frameworks=_inside("speculative_config", "num_speculative_tokens"),
        summary="tokens guessed at a time",
    ),
    _number(
        name="speculative_lookup",
        unit="tokens",
        bounds=(1, 64),
        needs=_SPECULATES,
        inactive=5,  # vLLM 0.31, vllm/config/speculative.py:1191
        frameworks=_inside("speculative_config", "prompt_lookup_max"),
        summary="last tokens that have to stand earlier too for what follows there to be guessed",
    ),
)
