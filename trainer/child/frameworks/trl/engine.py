"""Runs vLLM in TRL's process with arguments that TRL has no setting for, and a working weight sync on a CPU.

This file is also copied unchanged into an exported configuration, so it imports nothing of ours.

TRL builds its engine by the name ``LLM`` of one module; this module replaces the name by one that adds arguments.
Without a GPU two things differ: the size of the KV cache is given in bytes, and ``load_weights`` cannot be used for the
weight sync, because the CPU kernels hold their weights packed; ``reload_weights`` (vLLM's layerwise reload) packs them
again.
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

MODULE = "trl.generation.vllm_generation"
SUPPORTED = ((0, 26), (0, 32))
"""vLLM versions whose internals this module knows: from the first, below the second.

Tested: 0.26 (on a GPU) and 0.31 (on a CPU); the versions between are not tested."""
ENGINE_SEAMS: Dict[str, str] = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enforce_eager": "enforce_eager",
    "prefix_caching": "enable_prefix_caching",
    "chunked_prefill": "enable_chunked_prefill",
    "kv_cache_dtype": "kv_cache_dtype",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "rollout_dtype": "dtype",
    "rollout_quantization": "quantization",
    "rollout_load_format": "load_format",
    "custom_all_reduce": "disable_custom_all_reduce",
}
"""Knob -> argument of ``vllm.LLM``."""
COMPILATION = {"cuda_graph_max_batch": "max_cudagraph_capture_size", "vllm_compile_mode": "mode"}
"""Knob -> key of the argument ``compilation_config``."""
SPECULATION = {
    "speculative_decoding": "method",
    "speculative_tokens": "num_speculative_tokens",
    "speculative_lookup": "prompt_lookup_max",
}
"""Knob -> key of the argument ``speculative_config``, which is left out without speculative decoding."""
ENGINE_KNOBS = frozenset(ENGINE_SEAMS) | frozenset(COMPILATION) | frozenset(SPECULATION)
"""Knobs that this file sets."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}
MOST_CAPTURED = 512
"""Largest batch that vLLM captures by default, except on compute capability 10."""
FIRST_CACHE = 1 << 30
"""Bytes of KV cache on a CPU, unless set; vLLM's CPU backend itself would take a share of all memory."""
STEP = "finalize_loading"
"""Method that vLLM calls on a compiled function from its cache."""


class EngineError(ValueError):
    """The installed vLLM or TRL does not support a requested engine setting."""


def check_versions(vllm: str) -> None:
    """Raises ``EngineError`` for a vLLM version outside ``SUPPORTED``: the patches depend on the engine's internals."""
    parts = tuple(int(part) for part in vllm.split(".")[:2] if part.isdigit())
    low, high = SUPPORTED
    if not low <= parts < high:
        raise EngineError(
            "vLLM %s is installed, and this release can measure those that TRL supports; install one with: "
            "pip install 'vllm>=%d.%d,<%d.%d'" % (vllm, *low, *high)
        )


def before_import(device: str, compiles: bool = False) -> None:
    """Sets the environment that vLLM and torch read at import.

    ``compiles`` tells whether the configuration turns compilation on.
    """
    # Colocated means in this process.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if device != "cuda":
        # The engine and the trainer are one process, and threads are the trainer's to set.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        if not compiles:
            # The engine's sampler would be compiled, which needs a C++ compiler and time of every process.
            os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def take_port() -> None:
    """Sets a free port for the engine's rendezvous.

    TRL takes the first of four fixed ports that is free, so two trainers that start at the same time on one machine
    take the same one, and the second ends with ``EADDRINUSE``. Several ranks get their port from their launcher.
    """
    if "MASTER_PORT" in os.environ or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])


def leave_out(device: str) -> None:
    """Keeps TRL from importing vLLM for a trainer that does not use it; call it before TRL is imported.

    Applies the import's effects on the trainer: TRL imports any installed vLLM; on a GPU vLLM disables torch's cuDNN
    attention (``vllm/platforms/cuda.py``), which builds a plan for each length, makes torch compile in one process, and
    makes Triton store its autotuning results (``vllm/env_override.py``; its patches of torch's compiler are omitted).
    """
    checks: Any = importlib.import_module("trl.import_utils")
    if not hasattr(checks, "is_vllm_available"):
        return
    if device == "cuda" and checks.is_vllm_available():
        importlib.import_module("torch").backends.cuda.enable_cudnn_sdp(False)
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
    checks.is_vllm_available = lambda *_args, **_kwargs: False


def engine_arguments(seams: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the arguments of ``vllm.LLM`` for the engine's knobs among ``seams``."""
    found = {ENGINE_SEAMS[knob]: _in_vllms_words(knob, value) for knob, value in seams.items() if knob in ENGINE_SEAMS}
    compilation = {key: seams[knob] for knob, key in COMPILATION.items() if knob in seams}
    if "mode" in compilation:
        compilation["mode"] = str(compilation["mode"]).upper()
    if compilation:
        found["compilation_config"] = compilation
    if seams.get("speculative_decoding", "none") != "none":
        found["speculative_config"] = {key: seams[knob] for knob, key in SPECULATION.items() if knob in seams}
    return found


def _in_vllms_words(knob: str, value: Any) -> Any:
    if knob == "rollout_dtype":
        return DTYPES.get(value, value)
    if knob == "rollout_quantization":
        return None if value == "none" else value
    return not value if knob == "custom_all_reduce" else value


def graph_sizes(rows: int) -> List[int]:
    """Returns the batch sizes to capture as CUDA graphs for ``rows`` sequences, in the steps of vLLM's own list.

    vLLM captures up to twice ``max_num_seqs`` (0.31, vllm/config/vllm.py:2458). If no sequence has to wait, no decoding
    step is larger than ``rows``: larger graphs cost start-up and are not used.
    """
    steps = [1, 2, 4, *range(8, 256, 8), *range(256, MOST_CAPTURED, 16)]
    return [size for size in steps if size < rows] + [rows]


def _capture_no_more(arguments: Dict[str, Any], rows: Optional[int]) -> None:
    """Adds ``graph_sizes`` to the arguments of ``vllm.LLM`` unless they set the capture sizes.

    ``rows`` are those of one generation, which TRL passes to its engine as ``max_num_seqs``.
    """
    compilation = dict(arguments.get("compilation_config") or {})
    if rows is None or rows > MOST_CAPTURED or (arguments.get("max_num_seqs") or 0) < rows:
        return
    if not arguments.get("enforce_eager") and "max_cudagraph_capture_size" not in compilation:
        arguments["compilation_config"] = {**compilation, "cudagraph_capture_sizes": graph_sizes(rows)}


def install_engine(seams: Mapping[str, Any], device: str, after: Optional[Callable[[Any, int], None]] = None) -> None:
    """Patches TRL's engine; called after TRL is imported and before the trainer is built.

    Args:
        seams: knobs by name; knobs that are not the engine's are ignored.
        after: called with the engine, once built, and the bytes of memory that it took.

    Raises:
        EngineError: vLLM is missing or of another version, or TRL builds its engine in another way.
    """
    generation: Any = importlib.import_module(MODULE)
    if not hasattr(generation, "LLM") or not hasattr(generation.VLLMGeneration, "sync_weights"):
        raise EngineError("this TRL finds no vLLM, or builds its engine in a way that is not known here")
    check_versions(importlib.import_module("vllm").__version__)
    take_port()
    if device != "cuda":
        read_what_was_compiled()
    original, given = generation.LLM, engine_arguments(seams)

    @functools.wraps(original)
    def with_arguments(*args: Any, **kwargs: Any) -> Any:
        rows = kwargs.get("max_num_seqs")
        kwargs.update(given)
        if device == "cuda":
            _capture_no_more(kwargs, rows)
        kwargs.setdefault("disable_log_stats", False)  # counts preemptions and cache use
        if device != "cuda":
            kwargs.setdefault("enforce_eager", True)  # as the catalogue says: graphs are the GPU's
            kwargs.setdefault("kv_cache_memory_bytes", FIRST_CACHE)
            kwargs.pop("gpu_memory_utilization", None)
        before = held_bytes(device)
        engine = original(*args, **kwargs)
        if after is not None:
            after(engine, held_bytes(device) - before)
        return engine

    generation.LLM = with_arguments
    if device != "cuda" or given.get("quantization") is not None:
        generation.VLLMGeneration.sync_weights = sync_by_reload


def read_what_was_compiled() -> None:
    """Lets vLLM read functions compiled by torch's own backend, used on a CPU, from its compile cache.

    vLLM stores them like others, but then calls a method that only functions of its own backend have (0.31: "'function'
    object has no attribute 'finalize_loading'"), and so compiles again at every start. The cache is separate for each
    kind of CPU, because code for one may not run on another and torch compares only versions.
    """
    try:
        decorators: Any = importlib.import_module("vllm.compilation.decorators")
        compiler: Any = importlib.import_module("torch.compiler")
        load, key = decorators._try_load_aot_compiled_fn, decorators._model_hash_key
    except (ImportError, AttributeError):
        return  # this vLLM keeps nothing that could be read
    if hasattr(load, "__wrapped__"):
        return  # an earlier trial of this process has

    @functools.wraps(load)
    def loading(*args: Any, **kwargs: Any) -> Any:
        read = compiler.load_compiled_function

        @functools.wraps(read)
        def whole(*args: Any, **kwargs: Any) -> Any:
            found = read(*args, **kwargs)
            made = getattr(getattr(found, "_artifacts", None), "compiled_fn", None)
            if made is not None and not hasattr(made, STEP):
                setattr(made, STEP, lambda *_args: None)
            return found

        compiler.load_compiled_function = whole
        try:
            return load(*args, **kwargs)
        finally:
            compiler.load_compiled_function = read

    @functools.wraps(key)
    def of_this_cpu(*args: Any, **kwargs: Any) -> str:
        return "%s on %s" % (key(*args, **kwargs), cpu())

    decorators._try_load_aot_compiled_fn, decorators._model_hash_key = loading, of_this_cpu


def cpu() -> str:
    """Returns the identity of this CPU for compiler caches: model name and instruction sets of one core."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            lines = stream.read().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    features = [line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "CPU part", "Features")]
    return "; ".join([platform.machine(), *features])


def held_bytes(device: str) -> int:
    """Returns the memory in use, in bytes: of the GPU, from the driver; on a CPU, of this process."""
    if device == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(total - free)
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sync_by_reload(generation: Any) -> None:
    """Sends weights to the engine by its layerwise reload, which packs or quantises them as at the start."""
    if generation.mode != "colocate":
        raise EngineError("weights are reloaded in place only where the engine is colocated")
    if generation.enable_sleep_mode:
        importlib.import_module(MODULE).empty_cache()  # as TRL's own does: what torch only keeps is the engine's again
        generation.llm.wake_up(tags=["weights"])
        generation._llm_weights_sleeping = False
    worker = generation.llm.llm_engine.model_executor.driver_worker
    worker.reload_weights(weights_iterator=generation._iter_named_params())  # where layers find the configuration
    pack_tied_head(worker.model_runner.get_model())
    generation.llm.reset_prefix_cache()


def pack_tied_head(model: Any) -> None:
    """Updates the packed output head if it shares the embedding's weights; a reload does not include it."""
    head = getattr(model, "lm_head", None)
    method = getattr(head, "quant_method", None)
    if head is None or not hasattr(head, "cpu_linear") or method is None:
        return
    method.process_weights_after_loading(head)


class EngineWatch:
    """Counts preemptions, and the highest share of the KV cache in use, since ``begin``.

    Args:
        engine_bytes: bytes of memory that building the engine took.

    Raises:
        EngineError: the engine's scheduler is not where supported versions have it.
    """

    def __init__(self, engine: Any, engine_bytes: int) -> None:
        self.engine_bytes = engine_bytes
        self._preempted = 0
        self._usage = 0.0
        core = getattr(engine.llm_engine.engine_core, "engine_core", None)
        self._scheduler = getattr(core, "scheduler", None)
        manager = getattr(self._scheduler, "kv_cache_manager", None)
        if self._scheduler is None or manager is None:
            raise EngineError("this vLLM keeps its scheduler elsewhere, so its cache cannot be watched")
        schedule, preempt = self._scheduler.schedule, self._scheduler._preempt_request

        @functools.wraps(schedule)
        def watched(*args: Any, **kwargs: Any) -> Any:
            plan = schedule(*args, **kwargs)
            self._usage = max(self._usage, float(manager.usage))
            return plan

        @functools.wraps(preempt)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._preempted += 1
            return preempt(*args, **kwargs)

        self._scheduler.schedule = watched
        self._scheduler._preempt_request = counted

    def begin(self) -> None:
        self._preempted, self._usage = 0, 0.0

    def end(self) -> Tuple[int, float]:
        """Returns (preemptions, highest share of the KV cache in use)."""
        return self._preempted, self._usage
