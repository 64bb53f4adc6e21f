"""Inside the rollout engine: scheduling, graphs, compilation, caches."""

from __future__ import annotations

from search_spaces.configuration import KnobValue
from search_spaces.knobs.build import (
    ENGINE,
    GENERATE,
    SYNC,
    VLLM,
    cache,
    device,
    engine_settings,
    native,
    seam,
)
from search_spaces.knobs.model import Effect, Kind, Knob, Restart, Setting

_ROLLOUT = "actor_rollout_ref.rollout."
_VERL_ENGINE = "+actor_rollout_ref.rollout.engine_kwargs.vllm."
_SWIFT_ENGINE = "vllm_engine_kwargs."
_SPECULATES: dict[str, tuple[KnobValue, ...]] = {**VLLM, "speculative_decoding": ("ngram",)}


def _speculation(key: str, default: KnobValue | None) -> dict[str, Setting]:
    """``key`` of the mapping ``speculative_config``, which vLLM takes whole."""
    argument = f"speculative_config={{'{key}': ...}}"
    inside = f"speculative_config.{key}"
    return engine_settings(
        argument, default, native(_SWIFT_ENGINE + inside, default), native(_VERL_ENGINE + inside, default)
    )


KNOBS = (
    Knob(
        name="max_model_len",
        kind=Kind.INT,
        unit="tokens",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        bounds=(16, 16777216),
        needs=ENGINE,
        rest=32768,
        frameworks={
            "trl": native("vllm_max_model_length"),
            "open_r1": seam("trl.trainer.grpo_trainer.LLM(max_model_len=...)"),
            "ms_swift": native("vllm_max_model_len"),
            "verl": native(_ROLLOUT + "max_model_len"),
        },
        summary="longest sequence the engine prepares for; at least prompt + completion",
    ),
    Knob(
        name="max_num_seqs",
        kind=Kind.INT,
        unit="sequences",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        bounds=(1, 65536),
        needs=ENGINE,
        rest=256,
        frameworks=engine_settings(
            "max_num_seqs", None, native("vllm_max_num_seqs"), native(_ROLLOUT + "max_num_seqs", 256)
        ),
        summary="sequences decoded together",
    ),
    Knob(
        name="max_num_batched_tokens",
        kind=Kind.INT,
        unit="tokens",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        bounds=(1, 16777216),
        needs=VLLM,
        rest=8192,
        frameworks=engine_settings(
            "max_num_batched_tokens",
            4096,
            native(_SWIFT_ENGINE + "max_num_batched_tokens"),
            native(_ROLLOUT + "max_num_batched_tokens", 8192),
            open_r1=seam("trl.trainer.grpo_trainer.LLM(max_num_batched_tokens=...)"),
        ),
        summary="tokens of one engine step, prefill included",
    ),
    Knob(
        name="enforce_eager",
        kind=Kind.BOOL,
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        preload=True,
        memory=device(-1),
        needs=ENGINE,
        without_gpu=True,
        frameworks=engine_settings(
            "enforce_eager", False, native("vllm_enforce_eager", False), native(_ROLLOUT + "enforce_eager", False)
        ),
        summary="no CUDA graphs and no compilation: less memory, quicker start, slower decoding",
    ),
    Knob(
        name="cuda_graph_max_batch",
        kind=Kind.INT,
        unit="sequences",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=device(1),
        bounds=(1, 65536),
        needs={**VLLM, "enforce_eager": (False,)},
        rest=512,
        frameworks=engine_settings(
            "compilation_config={'max_cudagraph_capture_size': ...}",
            None,
            native(_SWIFT_ENGINE + "compilation_config.max_cudagraph_capture_size"),
            native(_VERL_ENGINE + "compilation_config.max_cudagraph_capture_size"),
        ),
        summary="CUDA graphs are captured for batches up to this size",
    ),
    Knob(
        name="vllm_compile_mode",
        kind=Kind.CHOICE,
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=device(0),
        order=("none", "stock_torch_compile", "dynamo_trace_once", "vllm_compile"),
        needs={**VLLM, "enforce_eager": (False,)},
        frameworks=engine_settings(
            "compilation_config={'mode': ...}",
            "vllm_compile",
            native(_SWIFT_ENGINE + "compilation_config.mode", "vllm_compile"),
            native(_VERL_ENGINE + "compilation_config.mode", "vllm_compile"),
        ),
        summary="how vLLM compiles the model",
    ),
    Knob(
        name="prefix_caching",
        kind=Kind.BOOL,
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=cache(0),
        needs=VLLM,
        frameworks=engine_settings(
            "enable_prefix_caching",
            True,
            native("vllm_enable_prefix_caching", True),
            native(_ROLLOUT + "enable_prefix_caching", True),
        ),
        summary="a group's common prompt is computed once",
    ),
    Knob(
        name="chunked_prefill",
        kind=Kind.BOOL,
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(0), *cache(0)),
        needs=VLLM,
        frameworks=engine_settings(
            "enable_chunked_prefill",
            True,
            native(_SWIFT_ENGINE + "enable_chunked_prefill", True),
            native(_ROLLOUT + "enable_chunked_prefill", True),
        ),
        summary="long prompts are computed in pieces beside decoding",
    ),
    Knob(
        name="kv_cache_dtype",
        kind=Kind.CHOICE,
        effect=Effect.NUMERICS,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=cache(1),
        order=("fp8", "auto"),
        others=("fp8_e4m3", "fp8_e5m2"),
        needs=VLLM,
        frameworks=engine_settings(
            "kv_cache_dtype",
            "auto",
            native(_SWIFT_ENGINE + "kv_cache_dtype", "auto"),
            native(_VERL_ENGINE + "kv_cache_dtype", "auto"),
        ),
        summary="what keys and values are kept in",
    ),
    Knob(
        name="rollout_dtype",
        kind=Kind.CHOICE,
        effect=Effect.NUMERICS,
        phases=GENERATE | SYNC,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        order=("bf16", "fp16", "fp32"),
        others=("auto",),
        needs=ENGINE,
        # ms-swift gives its engine the model's own dtype, and refuses another among the engine's arguments
        # (swift/infer_engine/vllm_engine.py, _prepare_engine_kwargs).
        frameworks=engine_settings("dtype", "auto", None, native(_ROLLOUT + "dtype", "bf16")),
        summary="what the engine computes in",
    ),
    Knob(
        name="rollout_load_format",
        kind=Kind.CHOICE,
        effect=Effect.SPEED,
        phases=frozenset(),
        restart=Restart.ENGINE,
        memory=(),
        order=("auto", "dummy"),
        others=(
            *("hf", "safetensors", "pt", "npcache", "mistral", "bitsandbytes", "gguf", "sharded_state", "tensorizer"),
            *("fastsafetensors", "instanttensor", "ipc_cache", "modelexpress", "runai_streamer"),
            "runai_streamer_sharded",
        ),  # LoadFormats of vLLM 0.8 to 0.31 (vllm/model_executor/model_loader/__init__.py)
        needs=ENGINE,
        frameworks=engine_settings(
            "load_format",
            "auto",
            native(_SWIFT_ENGINE + "load_format", "auto"),
            native(_ROLLOUT + "load_format", "dummy"),
        ),
        summary="the engine reads weights at start, or waits for the first sync",
    ),
    Knob(
        name="custom_all_reduce",
        kind=Kind.BOOL,
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=device(1),
        needs=VLLM,
        frameworks=engine_settings(
            "disable_custom_all_reduce",
            True,
            native("vllm_disable_custom_all_reduce", False),
            native(_VERL_ENGINE + "disable_custom_all_reduce", True),
        ),
        summary="vLLM's own all-reduce between the GPUs of a replica",
    ),
    Knob(
        name="speculative_decoding",
        kind=Kind.CHOICE,
        # What is guessed is kept with the probability that the model gives it, so completions are drawn as without
        # (vLLM 0.31, vllm/v1/sample/rejection_sampler.py:49).
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        order=("none", "ngram"),
        needs=VLLM,
        frameworks=_speculation("method", "none"),
        summary="the next tokens are guessed from what stands earlier in the sequence, and checked together",
    ),
    Knob(
        name="speculative_tokens",
        kind=Kind.INT,
        unit="tokens",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(*device(1), *cache(1)),
        bounds=(1, 64),
        needs=_SPECULATES,
        rest=4,
        frameworks=_speculation("num_speculative_tokens", None),
        summary="tokens guessed at a time",
    ),
    Knob(
        name="speculative_lookup",
        kind=Kind.INT,
        unit="tokens",
        effect=Effect.SPEED,
        phases=GENERATE,
        restart=Restart.ENGINE,
        memory=(),
        bounds=(1, 64),
        needs=_SPECULATES,
        rest=5,  # vLLM 0.31, vllm/config/speculative.py:1191
        frameworks=_speculation("prompt_lookup_max", None),
        summary="last tokens that have to stand earlier too for what follows there to be guessed",
    ),
)
