"""Numbers the roofline needs of a configuration, and the kind of process it starts; one at a time, pure.

A knob that is not set has the framework's default. Bytes are those of one weight or one cached number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Any

from autotune.domain import Phase, Resources
from autotune.proposals.forecasts import Task
from autotune.proposals.memory.dimensions import dimensions, trainable
from autotune.proposals.times.machine import KINDS
from search_spaces.adapters import is_lora
from search_spaces.batch import BATCH_KNOBS, batch_of, training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.build import ENGINES

WIDTH = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "auto": 2.0, "fp8": 1.0, "none": 0.0}
STATES = {
    "sgd": 0.0,
    "adafactor": 0.5,
    "muon": 1.0,
    "lion_32bit": 1.0,
    "lion_8bit": 0.25,
    "adamw_torch_8bit": 0.5,
    "adamw_torch_4bit": 0.25,
}
"""Optimizer state kept for each weight, in weights' own width; any other keeps two, in 8 bit a quarter of that."""
STEP_KERNELS = {"adafactor": 8.0}
"""Launches for each tensor of weights: transformers' own goes through them one by one."""
WITHOUT_LIMIT = 1e9

BATCH = ("ranks", "rows", "generations", "updates", "micro")
SHARING = ("shards", "zero", "held_bytes", "sent_bytes")
ENGINE = ("vllm", "server", "tensor", "replicas", "engine_bytes")
USED: Mapping[str, tuple[str, ...]] = {
    Phase.GENERATE.value: (
        *(*BATCH, *ENGINE, "sequences", "graphs", "compiled", "cache_bytes", "prefix", "sleep", "group"),
        *("master_bytes", "kind", *SHARING, "continuous"),
    ),
    Phase.LOGPROB.value: (*BATCH, "logprob_passes", "logprob_rows", "kind", *SHARING, "packed", "tile"),
    Phase.UPDATE.value: (
        *(*BATCH, *SHARING, "master_bytes", "kind", "checkpointing", "state_bytes", "fused", "host_bytes"),
        *("trainable", "reduce_bytes", "packed", "tile", "mapped", "step_kernels"),
    ),
    Phase.SYNC.value: (*BATCH, *ENGINE, *SHARING, "master_bytes", "quantized"),
    Phase.REWARD.value: ("rows",),
    Phase.WAIT.value: ("ranks", "rows", "vllm", "kind"),
    Phase.IDLE.value: ("ranks", "rows", "generations", "updates"),
}
"""Columns the seconds of a phase follow from, by ``Phase`` value."""

Get = Callable[[str], Any]


_RANKS = ("rollout_engine", "rollout_mode", "rollout_gpus", "training_gpus", "sequence_parallel_size")
_OF_BATCH = (*BATCH_KNOBS, *_RANKS)
_OF_TRAINING = (
    *("precision", "tf32", "master_weights", "zero_stage", "fsdp", "fsdp_reshard_after_forward", "fsdp_offload"),
    *("optimizer", "offload_optimizer", "gradient_checkpointing", "reduce_precision", "remove_padding"),
    *("logprob_token_chunk", "host_allocator"),
)
_OF_ENGINE = (
    *(*_RANKS, "tensor_parallel_size", "rollout_dtype", "rollout_quantization", "kv_cache_dtype", "max_num_seqs"),
    *("enforce_eager", "prefix_caching", "sleep_level", "continuous_batching", "rollout_data_parallel_size"),
)
"""Knobs that ``_batch``, ``_training`` and ``_engine`` look at."""
READ = (*dict.fromkeys((*_OF_BATCH, *_OF_TRAINING, *_OF_ENGINE)), "logprob_rows", "torch_compile", "engine_logprobs")
"""Knobs that ``facts_of`` looks at; configurations that agree on them have the same facts."""


Kept = dict[tuple[object, ...], dict[str, float]]
"""Parts of facts by the knobs they follow from; of many configurations few differ in one part."""


def facts_of(task: Task, values: Mapping[str, KnobValue], kept: Kept | None = None) -> dict[str, float]:
    """Every column of ``USED``, of one configuration.

    ``rows`` are completions of a cycle over all ranks, ``generations`` and ``updates`` how many a cycle has,
    ``replicas`` the engines that share a generation's rows, ``logprob_passes`` forward passes without gradients.
    ``kept`` is what was found of other configurations of the same task.
    """
    unset = defaults(task.resources.framework, task.resources.device)

    def get(name: str) -> Any:
        return values.get(name, unset.get(name))

    def part(names: tuple[str, ...], make: Callable[[], dict[str, float]]) -> dict[str, float]:
        if kept is None:
            return make()
        key = (names[-1], *map(values.get, names))
        if key not in kept:
            kept[key] = make()
        return kept[key]

    found = dict(part(_OF_BATCH, lambda: _batch(task, values)))
    found.update(part(_OF_TRAINING, lambda: _training(task, get)))
    found.update(part(_OF_ENGINE, lambda: _engine(task, get, values, found["ranks"])))
    own = get("engine_logprobs") is not True
    found["logprob_passes"] = _passes(task, found["vllm"] > 0, found, own=own)
    found["logprob_rows"] = _number(get("logprob_rows"), found["micro"])
    return found


def _batch(task: Task, values: Mapping[str, KnobValue]) -> dict[str, float]:
    batch = batch_of(values, task.resources)
    again = max(1.0, _number(task.passthrough.get("num_iterations"), 1.0))
    steps, accumulation = max(1, batch.steps), max(1, batch.accumulation)
    updates = math.lcm(int(steps * again), accumulation) // accumulation
    return {
        "ranks": float(batch.ranks),
        "micro": float(max(1, batch.micro)),
        "rows": float(max(1, batch.rows) * updates) / again,
        "generations": max(1.0, updates * accumulation / (steps * again)),
        "updates": float(updates),
        "again": again,
        "group": float(max(1, batch.group)),
        "steps": float(steps),
        "accumulation": float(accumulation),
    }


def _training(task: Task, get: Get) -> dict[str, float]:
    kind = str(get("precision") or "bf16")
    kind = "tf32" if kind == "fp32" and get("tf32") is True and task.resources.device != "cpu" else kind
    master = WIDTH.get(str(get("master_weights") or "fp32"), 4.0)
    stage = _number(get("zero_stage"), 0.0)
    sharded = stage >= 3 or (get("fsdp") in ("fsdp1", "fsdp2") and get("fsdp_reshard_after_forward") is not False)
    optimizer = str(get("optimizer") or "adamw_torch_fused")
    states = STATES.get(optimizer, 0.5 if "8bit" in optimizer else 2.0)
    low = 4.0 if kind in ("fp32", "tf32") else 2.0
    offloaded = get("offload_optimizer") in ("cpu", "nvme") or get("fsdp_offload") is True
    return {
        "kind": float(KINDS.index(kind) if kind in KINDS else KINDS.index("bf16")),
        "master_bytes": master,
        # DeepSpeed's engine casts the model it is given (``_configure_distributed_model``).
        "held_bytes": min(master, low) if stage >= 1 else master,
        "sent_bytes": low,
        "zero": stage,
        "checkpointing": float(get("gradient_checkpointing") is True),
        "state_bytes": states * master,
        "fused": float(optimizer != "adamw_torch"),
        "step_kernels": STEP_KERNELS.get(optimizer, 0.0),
        "shards": 2.0 if sharded else float(stage >= 1 or get("fsdp") in ("fsdp1", "fsdp2")),
        "host_bytes": 16.0 if offloaded else 0.0,
        "packed": float(get("remove_padding") is True),
        "trainable": _trainable(task),
        "reduce_bytes": WIDTH.get(str(get("reduce_precision") or "fp32"), 4.0),
        "tile": max(1.0, _number(get("logprob_token_chunk"), WITHOUT_LIMIT)),
        "mapped": float(task.resources.device == "cpu" and get("host_allocator") in (None, "default")),
    }


def _trainable(task: Task) -> float:
    """Share of the weights that is trained: 1, or that of adapters."""
    if not is_lora(task.passthrough, task.resources.framework):
        return 1.0
    size = dimensions(task.resources.model)
    return trainable(task.passthrough, task.resources.framework, size) / size.parameters


def _engine(task: Task, get: Get, values: Mapping[str, KnobValue], ranks: float) -> dict[str, float]:
    vllm = get("rollout_engine") in ENGINES
    server = vllm and get("rollout_mode") == "server"
    tensor = max(1.0, _number(get("tensor_parallel_size"), 1.0)) if vllm else 1.0
    dtype = WIDTH.get(str(get("rollout_dtype") or "auto"), 2.0)
    return {
        "vllm": float(vllm),
        "server": float(server),
        "tensor": tensor,
        "replicas": _replicas(task.resources, get, values, server, tensor) if vllm else ranks,
        "engine_bytes": 1.0 if get("rollout_quantization") == "fp8" else dtype,
        "cache_bytes": 1.0 if str(get("kv_cache_dtype") or "auto").startswith("fp8") else dtype,
        "quantized": float(get("rollout_quantization") == "fp8"),
        "sequences": _number(get("max_num_seqs"), 256.0) if vllm else WITHOUT_LIMIT,
        "graphs": float(vllm and get("enforce_eager") is not True and task.resources.device != "cpu"),
        "compiled": float(vllm and get("enforce_eager") is not True),
        "prefix": float(vllm and get("prefix_caching") is not False),
        "sleep": _number(get("sleep_level"), 0.0) if vllm and not server else 0.0,
        "continuous": float(vllm or get("continuous_batching") is True),
    }


def _replicas(resources: Resources, get: Get, values: Mapping[str, KnobValue], server: bool, tensor: float) -> float:
    if server:
        return max(1.0, _number(get("rollout_data_parallel_size"), 1.0))
    return max(1.0, float(training_gpus(values, resources)) // tensor)


def _passes(task: Task, vllm: bool, batch: Mapping[str, float], *, own: bool) -> float:
    """TRL's rule: the policy's own where generation and update differ or vLLM's are corrected, and the reference's.

    Not ``own``: the engine's log-probs are the old ones.
    """
    given = task.passthrough
    names = ("vllm_importance_sampling_correction", "importance_sampling_correction")
    corrected = vllm and all(given.get(name) is not False for name in names)
    aligned = batch["accumulation"] % (batch["steps"] * batch["again"]) == 0
    reference = _number(given.get("beta"), 0.0) != 0.0
    return float(own and (corrected or not aligned)) + float(reference)


def _number(value: object, otherwise: float) -> float:
    """A positive number or zero; anything else is ``otherwise``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return otherwise
    return float(value)


class ProcessKind(IntFlag):
    """What a start-up depends on."""

    VLLM = 1
    SERVER = 2
    ENGINE_COMPILES = 4
    TRAINER_COMPILES = 8
    SHARDED = 16


def process_kind(task: Task, configuration: Mapping[str, KnobValue]) -> ProcessKind:
    """The kind of process a configuration needs."""
    unset = defaults(task.resources.framework, task.resources.device)

    def get(name: str) -> object:
        return configuration.get(name, unset.get(name))

    vllm = get("rollout_engine") in ENGINES
    found = {
        ProcessKind.VLLM: vllm,
        ProcessKind.SERVER: vllm and get("rollout_mode") == "server",
        ProcessKind.ENGINE_COMPILES: vllm and get("enforce_eager") is not True,
        ProcessKind.TRAINER_COMPILES: get("torch_compile") is True,
        ProcessKind.SHARDED: get("zero_stage") in (1, 2, 3) or get("fsdp") in ("fsdp1", "fsdp2"),
    }
    return ProcessKind(sum(kind for kind, needed in found.items() if needed))
