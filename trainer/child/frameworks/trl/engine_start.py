"""Times the parts of vLLM's start: weights, profiling, cache and warm-up, at the worker's own methods."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

GPU_WORKER, CPU_WORKER = ("vllm.v1.worker.gpu_worker", "Worker"), ("vllm.v1.worker.cpu_worker", "CPUWorker")
STEPS = {
    "init_device": "device",
    "load_model": "weights",
    "determine_available_memory": "profile",
    "initialize_from_config": "cache",
    "compile_or_warm_up_model": "warm_up",
}
"""Method of vLLM's worker -> name of the part. Compiling happens in ``profile``, capturing graphs in ``warm_up``."""


@contextlib.contextmanager
def timed() -> Iterator[Dict[str, float]]:
    """While open, the seconds of each step of every engine built in this process are added to what is yielded.

    Without vLLM, and for an engine of another process, nothing is.
    """
    seconds: Dict[str, float] = {}
    replaced: List[Tuple[Any, str, Any]] = []
    open_steps: List[str] = []
    for worker in _workers():
        for method, part in STEPS.items():
            original = vars(worker).get(method)
            if original is not None:
                replaced.append((worker, method, original))
                setattr(worker, method, _timing(original, part, seconds, open_steps))
    try:
        yield seconds
    finally:
        for worker, method, original in replaced:
            setattr(worker, method, original)


def compiled(llm: Any) -> Dict[str, float]:
    """Seconds that compiling took and the sizes graphs are captured for, as the engine's configuration has them."""
    try:
        facts = llm.llm_engine.vllm_config.compilation_config
        return {"compiled": float(facts.compilation_time), "graph_sizes": len(facts.cudagraph_capture_sizes or ())}
    except AttributeError:
        return {}  # an engine of another version: the steps alone are told


def _workers() -> Iterator[Any]:
    """The worker of this platform, and the base of it. The CPU's is never imported where a GPU computes: it puts
    events and streams that do nothing into ``torch.cuda`` (vLLM 0.26, ``vllm/v1/worker/cpu/shm.py``)."""
    if "vllm" not in sys.modules:
        return
    with contextlib.suppress(ImportError, AttributeError):
        on_a_cpu = importlib.import_module("vllm.platforms").current_platform.is_cpu()
        for module, name in (GPU_WORKER, CPU_WORKER) if on_a_cpu else (GPU_WORKER,):
            yield getattr(importlib.import_module(module), name)


def _timing(original: Any, part: str, seconds: Dict[str, float], open_steps: List[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        if part in open_steps:  # a subclass calls the step of its base
            return original(*args, **kwargs)
        began = time.perf_counter()
        open_steps.append(part)
        try:
            return original(*args, **kwargs)
        finally:
            open_steps.remove(part)
            seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - began

    return step
