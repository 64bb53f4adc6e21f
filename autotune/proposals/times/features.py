"""Configurations as columns of numbers, by phase: only what acts on a phase, and each different row once.

A phase depends on few knobs, so of fifty thousand configurations only some hundred rows differ in it. What the model
computes, it computes for these rows, and ``index`` hands it out to the configurations. Computed once for a set of
candidates and used for every fit (``PhaseTimes.forecast_of``). Facts are what the roofline needs of a configuration; a
knob that is not set has the framework's default. Bytes are those of one weight or one cached number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Phase, Resources
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.memory.settings import dimensions, trainable
from autotune.proposals.reading import Codes, coded_columns, distinct
from autotune.proposals.times.machine import KINDS
from search_spaces.adapters import is_lora
from search_spaces.batch import BATCH_KNOBS, RANK_KNOBS, batch_of, model_parallel, training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Kind, Knob, defaults
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
        *("trainable", "reduce_bytes", "packed", "tile", "mapped", "step_kernels", "together"),
    ),
    Phase.SYNC.value: (*BATCH, *ENGINE, *SHARING, "master_bytes", "quantized"),
    Phase.REWARD.value: ("rows",),
    Phase.WAIT.value: ("ranks", "rows", "vllm", "kind"),
    Phase.IDLE.value: ("ranks", "rows", "generations", "updates"),
}
"""Columns the seconds of a phase follow from, by ``Phase`` value."""

Get = Callable[[str], Any]


_OF_BATCH = (*BATCH_KNOBS, *RANK_KNOBS, "training_engine", "virtual_pipeline_size")
_OF_TRAINING = (
    *("precision", "tf32", "master_weights", "zero_stage", "fsdp", "fsdp_reshard_after_forward", "fsdp_offload"),
    *("optimizer", "offload_optimizer", "gradient_checkpointing", "reduce_precision", "remove_padding"),
    *("logprob_token_chunk", "host_allocator", "training_engine", "recompute_granularity"),
)
_OF_ENGINE = (
    *(*RANK_KNOBS, "tensor_parallel_size", "rollout_dtype", "rollout_quantization", "kv_cache_dtype", "max_num_seqs"),
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
        "together": _together(values, accumulation),
    }


def _together(values: Mapping[str, KnobValue], accumulation: int) -> float:
    """By how much Megatron's ranks that compute the same rows are faster than one; 1 elsewhere.

    Stages wait (p - 1)/(v m) of the time that m micro-batches take (Narayanan et al., arXiv 2104.04473, section 2.2).
    """
    if values.get("training_engine") != "megatron":
        return 1.0
    stages = max(1.0, _number(values.get("pipeline_parallel_size"), 1.0))
    parts = max(1.0, _number(values.get("virtual_pipeline_size"), 1.0))
    return model_parallel(values) / (1.0 + (stages - 1.0) / (parts * accumulation))


def _training(task: Task, get: Get) -> dict[str, float]:
    kind = str(get("precision") or "bf16")
    kind = "tf32" if kind == "fp32" and get("tf32") is True and task.resources.device != "cpu" else kind
    master = WIDTH.get(str(get("master_weights") or "fp32"), 4.0)
    stage = _number(get("zero_stage"), 0.0)
    megatron = get("training_engine") == "megatron"
    fsdp = get("fsdp") in ("fsdp1", "fsdp2") and not megatron
    sharded = stage >= 3 or (fsdp and get("fsdp_reshard_after_forward") is not False)
    again = get("recompute_granularity") == "full" if megatron else get("gradient_checkpointing") is True
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
        "checkpointing": float(again),
        "state_bytes": states * master,
        "fused": float(optimizer != "adamw_torch"),
        "step_kernels": STEP_KERNELS.get(optimizer, 0.0),
        "shards": 2.0 if sharded else float(stage >= 1 or fsdp or megatron),
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
    NODES = 32
    """On several."""


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
        ProcessKind.NODES: task.resources.nodes > 1,
    }
    return ProcessKind(sum(kind for kind, needed in found.items() if needed))


PHASES = tuple(USED)
"""``Phase`` values, in the order of a cycle."""
MAIN = (Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value, Phase.SYNC.value)
"""Phases that a knob without phases, as an allocator's, acts on."""
OFF = 1e9
"""In a knob's column: it cannot act here."""
GENERATIONS = "generations"
"""Stands for ``steps_per_generation`` and ``gradient_accumulation_steps``: rollouts of a cycle."""
NEIGHBOURS: Mapping[str, tuple[str, ...]] = {Phase.UPDATE.value: ("rollout_engine",)}
"""Knobs of another phase that leave their mark: an engine beside the trainer takes caches and cores."""
_REPLACED = ("steps_per_generation", "gradient_accumulation_steps")


def constants(own: Mapping[str, Column]) -> dict[str, float]:
    """Columns with one value: their names and that value."""
    return {name: float(c[0]) for name, c in own.items() if len(c) and (c == c[0]).all()}


@dataclass(frozen=True)
class PhaseRows:
    """The different rows of one phase."""

    own: Mapping[str, Column]
    """By knob, what the learnt part sees: the base-2 logarithm of a number, a code for a choice; ``OFF``."""
    facts: Mapping[str, Column]
    """What the prior sees."""
    index: NDArray[np.intp]
    """Of each configuration, its row."""
    keys: tuple[bytes, ...]
    """Of each row; equal rows have equal keys whichever configurations they were computed with."""
    kept: dict[Hashable, tuple[object, Column]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """By prior, what it was asked and said of these rows last."""

    @cached_property
    def places(self) -> Mapping[bytes, int]:
        """Rows by their keys."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def _same(self) -> Mapping[str, float]:
        return constants(self.own)

    def unlike(self, same: Mapping[str, float]) -> Mapping[str, Column]:
        """``own`` without the knobs that have the one value of ``same`` in every row."""
        return {name: column for name, column in self.own.items() if self._same.get(name, math.nan) != same.get(name)}


@dataclass(frozen=True)
class Features:
    """Of a sequence of configurations, in their order."""

    phases: Mapping[str, PhaseRows]
    starts: NDArray[np.intp]
    """``ProcessKind`` of each."""

    @cached_property
    def kinds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The different ones of ``starts``, and of each configuration which one it is."""
        several, index = np.unique(self.starts, return_inverse=True)
        return several, index.reshape(-1)


@lru_cache(maxsize=1)
def knobs_of_phases() -> Mapping[str, tuple[str, ...]]:
    """By ``Phase`` value the knobs its learnt part sees: those the catalogue says act on it."""
    found = {}
    for phase in PHASES:
        names = [k.name for k in KNOBS.values() if k.name not in _REPLACED and _acts(k, phase)]
        found[phase] = (*names, *NEIGHBOURS.get(phase, ()), *((GENERATIONS,) if phase in MAIN[:1] else ()))
    return found


def _acts(knob: Knob, phase: str) -> bool:
    # Without phases it acts on all, if on anything: what it does to memory says so.
    return phase in knob.phases or (not knob.phases and bool(knob.memory) and phase in MAIN)


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
    """What there is to know of each configuration, a row each: its knobs, its facts, its ``ProcessKind``. A row depends
    on no other."""
    unset = defaults(task.resources.framework, task.resources.device)
    rows = [dict(configuration.items()) for configuration in configurations]
    given = {name for row in rows for name in row}
    said = {name: [row.get(name) for row in rows] for name in given}
    nothing: list[KnobValue | None] = [None] * len(rows)
    looked = list(zip(*(said.get(name, nothing) for name in READ), strict=True))
    kept: Kept = {}
    distinct = dict(zip(looked, rows, strict=True))
    few = {key: (facts_of(task, row, kept), process_kind(task, row)) for key, row in distinct.items()}
    facts = [few[key][0] for key in looked]
    codes = _Codes(said, unset, len(rows))
    columns = [codes.of(name) for name in _knobs()]
    columns.append(np.log2(np.array([fact["generations"] for fact in facts], dtype=np.float64)))
    columns += [np.array([fact[name] for fact in facts], dtype=np.float64) for name in _facts()]
    return np.column_stack([*columns, [float(few[key][1]) for key in looked]])


def tabled(values: NDArray[np.float64]) -> Features:
    """What was read of configurations by phase, each different row once."""
    codes = coded_columns(values)
    return Features({phase: _rows_of(phase, values, codes) for phase in PHASES}, values[:, -1].astype(np.intp))


@lru_cache(maxsize=1)
def _knobs() -> tuple[str, ...]:
    return tuple(sorted({name for names in knobs_of_phases().values() for name in names} - {GENERATIONS}))


@lru_cache(maxsize=1)
def _facts() -> tuple[str, ...]:
    return tuple(sorted({name for names in USED.values() for name in names}))


@lru_cache(maxsize=16)
def _places(phase: str) -> NDArray[np.intp]:
    """Of a phase, the columns of its knobs, then of its facts."""
    knobs = (*_knobs(), GENERATIONS)
    own = [knobs.index(name) for name in knobs_of_phases()[phase]]
    return np.array([*own, *(len(knobs) + _facts().index(name) for name in USED[phase])], dtype=np.intp)


def _rows_of(phase: str, values: NDArray[np.float64], codes: Codes) -> PhaseRows:
    own, used, columns = knobs_of_phases()[phase], USED[phase], _places(phase)
    first, index = distinct(codes, columns.tolist(), len(values))
    few = np.ascontiguousarray(values[first][:, columns])
    return PhaseRows(
        own={name: few[:, place] for place, name in enumerate(own)},
        facts={name: few[:, len(own) + place] for place, name in enumerate(used)},
        index=index,
        keys=tuple(row.tobytes() for row in few),
    )


@dataclass(frozen=True)
class _Codes:
    """Knobs as columns."""

    said: Mapping[str, Sequence[KnobValue | None]]
    """Each configuration's value of every knob that any of them sets."""
    unset: Mapping[str, KnobValue]
    """What a knob is where a configuration does not set it."""
    size: int
    acting: dict[tuple[str, tuple[KnobValue, ...]], Column] = field(default_factory=dict)
    """1 where a knob has one of some values; most of an engine's depend on the same."""

    def of(self, name: str) -> Column:
        """A knob's column."""
        knob = KNOBS[name]
        found = self._each(name, partial(_code, knob))
        for need in knob.needs.items():
            if need not in self.acting:
                self.acting[need] = self._each(need[0], need[1].__contains__)
            found = np.where(self.acting[need] > 0, found, OFF)
        return found

    def _each(self, name: str, number: Callable[[KnobValue | None], float]) -> Column:
        unset = self.unset.get(name)
        if name not in self.said:
            return np.full(self.size, float(number(unset)))
        numbers = {value: float(number(unset if value is None else value)) for value in set(self.said[name])}
        return np.array([numbers[value] for value in self.said[name]])


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
