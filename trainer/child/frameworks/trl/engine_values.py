"""Compares the engine settings that vLLM uses with those requested.

It changes some values with no more than a line in its log: a capture size is cut to one it has, prefix caching is
turned off where a model cannot have it. The knob would be measured without acting.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from .engine import EngineError

PLACES: Mapping[str, Tuple[str, str]] = {
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "rollout_quantization": ("model_config", "quantization"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "kv_cache_memory_bytes": ("cache_config", "kv_cache_memory_bytes"),
    "prefix_caching": ("cache_config", "enable_prefix_caching"),
    "cuda_graph_max_batch": ("compilation_config", "max_cudagraph_capture_size"),
}
"""Knob -> part and name in the engine's ``vllm_config``; alike in vLLM 0.26 and 0.31."""
ROUNDING = ("rollout_quantization", "kv_cache_dtype")
"""A figure of these must not stand under a rounding that did not happen."""
FREE = (None, "none", "auto")
"""Asked for so, the engine may have whatever it finds right."""


def has_otherwise(llm: Any, seams: Mapping[str, Any]) -> Dict[str, Any]:
    """Engine settings that differ from the requested ones, by knob.

    A place that this vLLM does not have tells nothing.

    Raises:
        EngineError: it rounds in another way than asked for.
    """
    config = getattr(getattr(llm, "llm_engine", None), "vllm_config", None)
    found: Dict[str, Any] = {}
    for knob, (part, name) in PLACES.items():
        place = getattr(config, part, None)
        if seams.get(knob) in FREE or not hasattr(place, name):
            continue
        has = getattr(place, name)
        if not _alike(knob, seams[knob], has):
            found[knob] = has if isinstance(has, (bool, int, float, type(None))) else str(has)
    for knob in ROUNDING:
        if knob in found:
            raise EngineError("%s %s: the engine has %s instead" % (knob, seams[knob], found[knob]))
    return found


def _alike(knob: str, asked: Any, has: Any) -> bool:
    """Whether vLLM's value equals the requested one; an FP8 format has several names."""
    if knob in ROUNDING and str(asked).startswith("fp8"):
        return "fp8" in str(has).lower()
    return bool(has == asked)
