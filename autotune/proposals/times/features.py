"""Configurations as columns of numbers, by phase: only what acts on a phase, and each different row once.

``index`` hands the rows out to the configurations. Facts are what the roofline needs of a configuration; an unset knob
has the framework's default. Bytes are those of one weight or one cached number.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Phase
from autotune.machine.data_sheets import KINDS
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import dimensions, trainable
from autotune.proposals.reading import Codes, Columns, coded_columns, columns_of, distinct
from autotune.proposals.times.lengths import presumed
from search_spaces.adapters import is_lora
from search_spaces.batch import BATCH_KNOBS, RANK_KNOBS, batch_of, model_parallel, training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Kind, Knob
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
    Phase.LOGPROB.value: (*BATCH, "logprob_passes", "logprob_rows", "kind", *SHARING, "packed", "tile", "together"),
    Phase.UPDATE.value: (
        *(*BATCH, *SHARING, "master_bytes", "kind", "checkpointing", "state_bytes", "fused", "host_bytes"),
        *("trainable", "reduce_bytes", "packed", "tile", "step_kernels", "together"),
    ),
    Phase.SYNC.value: (*BATCH, *ENGINE, *SHARING, "master_bytes", "quantized", "sleep"),
    Phase.REWARD.value: ("rows",),
    Phase.WAIT.value: ("ranks", "rows", "vllm", "kind"),
    Phase.IDLE.value: ("ranks", "rows", "generations", "updates"),
}
"""Columns the seconds of a phase follow from, by ``Phase`` value."""

OF_BATCH = (*BATCH_KNOBS, *RANK_KNOBS, "training_engine", "virtual_pipeline_size")
"""Knobs that ``batch_facts`` looks at."""


def facts_of(task: Task, c: Columns) -> dict[str, Column]:
    """Returns every column of ``USED``: ``rows`` (completions) of a cycle over all ranks, ``generations`` and
    ``updates`` of a cycle, ``replicas`` that share a generation's rows, ``logprob_passes`` without gradients, and
    others."""
    few, place = c.different(OF_BATCH)
    batches = [batch_facts(task, values) for values in few]
    found = {name: np.array([one[name] for one in batches])[place] for name in batches[0]}
    found |= _training(task, c)
    found |= _engine(task, c, found["ranks"], found["gpus"])
    found["logprob_passes"] = _passes(task, c, found)
    found["logprob_rows"] = _amount(c, "logprob_rows", found["micro"])
    lengths = presumed(task)
    row, dynamic = lengths.prompt + float(np.mean(lengths.completions)), c.each("dynamic_batching", _on) > 0
    tokens = _amount(c, "update_tokens", 16384.0)
    for name, budget in (("micro", tokens), ("logprob_rows", _amount(c, "logprob_tokens", tokens))):
        found[name] = np.where(dynamic, np.maximum(1.0, budget // row), found[name])
    return found


def batch_facts(task: Task, values: Mapping[str, KnobValue]) -> dict[str, float]:
    """Facts that follow from the batch of one configuration."""
    batch = batch_of(values, task.resources)
    again = max(1.0, _number(task.passthrough.get("num_iterations"), 1.0))
    steps, accumulation = max(1, batch.steps), max(1, batch.accumulation)
    updates = math.lcm(int(steps * again), accumulation) // accumulation
    return {
        "gpus": float(training_gpus(values, task.resources)),
        "ranks": float(batch.ranks),
        "micro": float(max(1, batch.micro)),
        "rows": float(max(1, batch.rows) * updates) / again,
        "generations": max(1.0, updates * accumulation / (steps * again)),
        "updates": float(updates),
        "again": again,
        "group": float(max(1, batch.group)),
        "steps": float(steps),
        "accumulation": float(accumulation),
        "together": _together(values, accumulation),
    }


def _together(values: Mapping[str, KnobValue], accumulation: int) -> float:
    """Returns how much faster Megatron's ranks that compute the same rows are than one; 1 elsewhere. Stages wait
    (p - 1)/(v m) of the time of m micro-batches (Narayanan et al., arXiv 2104.04473, section 2.2)."""
    if values.get("training_engine") != "megatron":
        return 1.0
    stages = max(1.0, _number(values.get("pipeline_parallel_size"), 1.0))
    parts = max(1.0, _number(values.get("virtual_pipeline_size"), 1.0))
    return model_parallel(values) / (1.0 + (stages - 1.0) / (parts * accumulation))


_FSDP = ("fsdp1", "fsdp2")


def _training(task: Task, c: Columns) -> dict[str, Column]:
    cpu = task.resources.device == "cpu"
    kind = c.each("precision", _kind)
    kind = np.where((kind == KINDS.index("fp32")) & (c.each("tf32", _on) > 0) & (not cpu), KINDS.index("tf32"), kind)
    low = np.where(kind <= KINDS.index("tf32"), 4.0, 2.0)
    master, stage = c.each("master_weights", _width), _amount(c, "zero_stage", 0.0)
    megatron = c.each("training_engine", lambda engine: engine == "megatron") > 0
    fsdp = (c.each("fsdp", _FSDP.__contains__) > 0) & ~megatron
    resharded = fsdp & (c.each("fsdp_reshard_after_forward", _not_off) > 0)
    full = c.each("recompute_granularity", lambda layers: layers == "full")
    offloaded = (c.each("offload_optimizer", ("cpu", "nvme").__contains__) > 0) | (c.each("fsdp_offload", _on) > 0)
    return {
        "kind": kind,
        "master_bytes": master,
        # DeepSpeed's engine casts the model it is given (``_configure_distributed_model``).
        "held_bytes": np.where(stage >= 1, np.minimum(master, low), master),
        "sent_bytes": low,
        "zero": stage,
        "checkpointing": np.where(megatron, full, c.each("gradient_checkpointing", _on)),
        "state_bytes": c.each("optimizer", _states) * master,
        "fused": c.each("optimizer", lambda name: name != "adamw_torch"),
        "step_kernels": c.each("optimizer", lambda name: STEP_KERNELS.get(str(name), 0.0)),
        "shards": np.where((stage >= 3) | resharded, 2.0, (stage >= 1) | fsdp | megatron),
        "host_bytes": np.where(offloaded, 16.0, 0.0),
        "packed": c.each("remove_padding", _on),
        "trainable": c.full(_trainable(task)),
        "reduce_bytes": c.each("reduce_precision", _width),
        "tile": np.maximum(1.0, _amount(c, "logprob_token_chunk", WITHOUT_LIMIT)),
    }


def _on(value: KnobValue | None) -> bool:
    return value is True


def _not_off(value: KnobValue | None) -> bool:
    return value is not False


def _kind(precision: KnobValue | None) -> float:
    return KINDS.index(str(precision)) if precision in KINDS else KINDS.index("bf16")


def _width(kind: KnobValue | None) -> float:
    return WIDTH.get(str(kind or "fp32"), 4.0)


def _states(optimizer: KnobValue | None) -> float:
    return STATES.get(str(optimizer), 0.5 if "8bit" in str(optimizer) else 2.0)


def _trainable(task: Task) -> float:
    """Share of the weights that is trained: 1, or that of adapters."""
    if not is_lora(task.passthrough, task.resources.framework):
        return 1.0
    size = dimensions(task.resources.model)
    return trainable(task.passthrough, task.resources.framework, size) / size.parameters


def _engine(task: Task, c: Columns, ranks: Column, gpus: Column) -> dict[str, Column]:
    vllm = c.each("rollout_engine", ENGINES.__contains__)
    server = vllm * c.each("rollout_mode", lambda mode: mode == "server")
    tensor = np.where(vllm > 0, np.maximum(1.0, _amount(c, "tensor_parallel_size", 1.0)), 1.0)
    served = np.maximum(1.0, _amount(c, "rollout_data_parallel_size", 1.0))
    replicas = np.where(server > 0, served, np.maximum(1.0, gpus // tensor))
    quantized = c.each("rollout_quantization", lambda kind: kind == "fp8")
    dtype = c.each("rollout_dtype", lambda kind: WIDTH.get(str(kind or "auto"), 2.0))
    compiled = vllm * (1.0 - c.each("enforce_eager", _on))
    return {
        "vllm": vllm,
        "server": server,
        "tensor": tensor,
        "replicas": np.where(vllm > 0, replicas, ranks),
        "engine_bytes": np.where(quantized > 0, 1.0, dtype),
        "cache_bytes": np.where(c.each("kv_cache_dtype", lambda kind: str(kind).startswith("fp8")) > 0, 1.0, dtype),
        "quantized": quantized,
        "sequences": np.where(vllm > 0, _amount(c, "max_num_seqs", 256.0), WITHOUT_LIMIT),
        "graphs": compiled * (task.resources.device != "cpu"),
        "compiled": compiled,
        "prefix": vllm * c.each("prefix_caching", _not_off),
        "sleep": (vllm - server) * _amount(c, "sleep_level", 0.0),
        "continuous": np.maximum(vllm, c.each("continuous_batching", _on)),
    }


def _passes(task: Task, c: Columns, found: Mapping[str, Column]) -> Column:
    """Counts by TRL's rule: the policy's own pass where generation and update differ or vLLM's are corrected (not
    where the engine's log-probs are the old ones), and the reference's."""
    given = task.passthrough
    names = ("vllm_importance_sampling_correction", "importance_sampling_correction")
    corrected = (found["vllm"] > 0) & all(given.get(name) is not False for name in names)
    aligned = found["accumulation"] % (found["steps"] * found["again"]) == 0
    reference = _number(given.get("beta"), 0.0) != 0.0
    found_anew: Column = np.where(c.each("engine_logprobs", _on) > 0, 0.0, corrected | ~aligned)
    return found_anew + float(reference)


def _number(value: object, otherwise: float) -> float:
    """A positive number or zero; anything else is ``otherwise``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return otherwise
    return float(value)


def _amount(c: Columns, name: str, otherwise: float | Column) -> Column:
    """``_number`` of a knob."""
    found = c.each(name, lambda value: _number(value, math.nan))
    return np.where(np.isnan(found), otherwise, found)


class ProcessKind(IntFlag):
    """Properties of a configuration that its start-up time depends on."""

    VLLM = 1
    SERVER = 2
    ENGINE_COMPILES = 4
    TRAINER_COMPILES = 8
    SHARDED = 16
    NODES = 32
    """On several."""


def _process_kinds(task: Task, c: Columns, facts: Mapping[str, Column]) -> Column:
    """The kind of process each configuration needs."""
    sharded = (c.each("zero_stage", (1, 2, 3).__contains__) > 0) | (c.each("fsdp", _FSDP.__contains__) > 0)
    needed = {
        ProcessKind.VLLM: facts["vllm"],
        ProcessKind.SERVER: facts["server"],
        ProcessKind.ENGINE_COMPILES: facts["compiled"],
        ProcessKind.TRAINER_COMPILES: c.each("torch_compile", _on),
        ProcessKind.SHARDED: np.where(sharded, 1.0, 0.0),
        ProcessKind.NODES: c.full(task.resources.nodes > 1),
    }
    return sum((int(kind) * column for kind, column in needed.items()), start=c.full(0.0))


PHASES = tuple(USED)
"""``Phase`` values, in the order of a cycle."""
OFF = 1e9
"""In a knob's column: it cannot act here."""
GENERATIONS = "generations"
"""Stands for ``steps_per_generation`` and ``gradient_accumulation_steps``: rollouts of a cycle."""
NEIGHBOURS: Mapping[str, tuple[str, ...]] = {Phase.UPDATE.value: ("rollout_engine",)}
"""Knobs of another phase that leave their mark: an engine beside the trainer takes caches and cores."""
BY_TOKENS = ("micro_batch_size", "logprob_rows")
"""Replaced by budgets of tokens where batches are dynamic."""
_REPLACED = ("steps_per_generation", "gradient_accumulation_steps")


@dataclass(frozen=True)
class PhaseRows:
    """The different rows of one phase."""

    own: Mapping[str, Column]
    """By knob, what the learnt part sees: the base-2 logarithm of a number, a code for a choice; ``OFF``."""
    facts: Mapping[str, Column]
    """What the prior sees."""
    index: NDArray[np.intp]
    """Of each configuration, its row."""
    keys: NDArray[np.int64]
    """Of each row; equal rows have equal keys whichever configurations they were computed with."""
    kept: dict[Hashable, tuple[object, Any]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """By prior, what it was asked and said of these rows last."""


@dataclass(frozen=True)
class Features:
    """Columns of a sequence of configurations, in their order."""

    phases: Mapping[str, PhaseRows]
    starts: NDArray[np.intp]
    """``ProcessKind`` of each."""

    @cached_property
    def kinds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The different ones of ``starts``, and of each configuration which one it is."""
        several, index = np.unique(self.starts, return_inverse=True)
        return several, index.reshape(-1)


def _knobs_of(phase: str) -> tuple[str, ...]:
    names = [k.name for k in KNOBS.values() if k.name not in _REPLACED and k.acts_on(phase)]
    return (*names, *NEIGHBOURS.get(phase, ()), *((GENERATIONS,) if phase == Phase.GENERATE else ()))


KNOBS_OF: Mapping[str, tuple[str, ...]] = {phase: _knobs_of(phase) for phase in PHASES}
"""By ``Phase`` value the knobs its learnt part sees: those the catalogue says act on it."""
_KNOBS = tuple(sorted({name for names in KNOBS_OF.values() for name in names} - {GENERATIONS}))
_FACTS = tuple(sorted({name for names in USED.values() for name in names}))
_NEEDS = {need for name in _KNOBS for need in KNOBS[name].needs.items()}
_KNOB_AT = {name: place for place, name in enumerate((*_KNOBS, GENERATIONS))}
_FACT_AT = {name: len(_KNOB_AT) + place for place, name in enumerate(_FACTS)}
"""Places among the columns of ``read``."""


@lru_cache(maxsize=256)
def is_number(name: str) -> bool:
    """Whether a knob's column holds logarithms; else it holds codes."""
    knob = KNOBS.get(name)
    if knob is None:
        return name == GENERATIONS
    return knob.kind in (Kind.INT, Kind.FLOAT) and knob.unit not in ("stage", "level")


def features(task: Task, configurations: Sequence[Configuration]) -> Features:
    """The columns of ``configurations``; pure, and the only part whose time grows with their number."""
    return tabled(read(task, configurations))


def read(task: Task, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
    """Facts of each configuration, a row each: its knobs, its facts, its ``ProcessKind``. A row depends on no other."""
    c = columns_of(tuple(configurations), task.resources.framework, task.resources.device)
    facts = facts_of(task, c)
    acting = {need: c.each(need[0], need[1].__contains__) > 0 for need in _NEEDS}
    dynamic = c.each("dynamic_batching", _on) > 0
    columns = [np.where(dynamic & (name in BY_TOKENS), OFF, _column(KNOBS[name], c, acting)) for name in _KNOBS]
    columns += [np.log2(facts["generations"]), *(facts[name] for name in _FACTS)]
    return np.column_stack([*columns, _process_kinds(task, c, facts)])


def tabled(values: NDArray[np.float64]) -> Features:
    """Distinct rows of configurations by phase."""
    codes = coded_columns(values)
    return Features({phase: _rows_of(phase, values, codes) for phase in PHASES}, values[:, -1].astype(np.intp))


def _rows_of(phase: str, values: NDArray[np.float64], codes: Codes) -> PhaseRows:
    own, used = KNOBS_OF[phase], USED[phase]
    columns = [*(_KNOB_AT[name] for name in own), *(_FACT_AT[name] for name in used)]
    first, index = distinct(codes, columns, len(values))
    few = np.ascontiguousarray(values[first][:, columns])
    return PhaseRows(
        own={name: few[:, place] for place, name in enumerate(own)},
        facts={name: few[:, len(own) + place] for place, name in enumerate(used)},
        index=index,
        keys=np.array([_digest(row.tobytes()) for row in few], dtype=np.int64),
    )


def _digest(row: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big", signed=True)


def _column(knob: Knob, c: Columns, acting: Mapping[tuple[str, tuple[KnobValue, ...]], NDArray[np.bool_]]) -> Column:
    """Of a knob; ``acting`` tells where a knob that others depend on has one of some values."""
    found = c.each(knob.name, partial(_code, knob))
    for need in knob.needs.items():
        found = np.where(acting[need], found, OFF)
    return found


def _code(knob: Knob, value: KnobValue | None) -> float:
    if value is None:
        return OFF
    if not is_number(knob.name):
        return coded(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return OFF
    return math.log2(max(float(value), 0.5 if knob.kind is Kind.INT else 1e-6))


@lru_cache(maxsize=4096)
def coded(value: KnobValue) -> float:
    """A choice as a number: the same in every process, exact in a float."""
    return float(zlib.crc32(f"{type(value).__name__}:{value}".encode()))
