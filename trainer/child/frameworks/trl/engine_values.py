"""Compares the engine settings that vLLM uses with those requested.

vLLM changes some values with only a line in its log: it cuts a capture size, or turns prefix caching off for some
models. The knob would be measured without an effect.
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
"""Knobs that round: a figure must not be recorded for a rounding that did not happen."""
FREE = (None, "none", "auto")
"""Values that leave the choice to the engine."""


def has_otherwise(llm: Any, seams: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the engine settings that differ from the requested ones, by knob.

    A setting that this vLLM does not have is skipped.

    Raises EngineError if the engine rounds in another way than requested.
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
    """Tells whether vLLM's value equals the requested one; an FP8 format has several names."""
    if knob in ROUNDING and str(asked).startswith("fp8"):
        return "fp8" in str(has).lower()
    return bool(has == asked)
