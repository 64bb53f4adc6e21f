"""Configurations as columns of numbers, by phase: only columns that act on the phase, and each distinct row once.

Facts are the inputs of the roofline; the columns of knobs are those of the learnt part. An unset knob has the
framework's default. Bytes are those of one weight or one cached number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Phase
from autotune.machine.data_sheets import KINDS
from autotune.proposals.forecasts import REMEMBERED, Column, Task
from autotune.proposals.memory.settings import dimensions, trainable
from autotune.proposals.reading import Columns, columns_of
from autotune.proposals.times.lengths import presumed
from search_spaces.batch import BATCH_KNOBS, RANK_KNOBS, batch_of, model_parallel, training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Kind, Knob
from search_spaces.knobs.build import ENGINES
from search_spaces.own_keys import is_lora

WIDTH = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "auto": 2.0, "fp8": 1.0}
STATES = {"sgd": 0.0, "adafactor": 0.5, "muon": 1.0, "lion_32bit": 1.0, "lion_8bit": 0.25, "adamw_torch_4bit": 0.25}
"""Size of the optimizer state relative to the weights; any other optimizer has 2, in 8 bit 0.5."""
UNLIMITED = 1e9
TOKENS_OF_BATCH = 16384.0
"""verl's default of ``update_tokens`` (``ppo_max_token_len_per_gpu``)."""

BATCH = ("ranks", "rows", "generations", "updates", "micro")
SHARING = ("shards", "zero", "held_bytes", "sent_bytes")
ENGINE = ("vllm", "server", "tensor", "replicas", "engine_bytes")
USED: Mapping[str, tuple[str, ...]] = {
    Phase.GENERATE.value: (
        *(*BATCH, *ENGINE, *SHARING, "sequences", "graphs", "compiled", "cache_bytes", "prefix", "group"),
        *("master_bytes", "kind", "continuous"),
    ),
    Phase.LOGPROB.value: (*BATCH, *SHARING, "logprob_passes", "logprob_rows", "kind", "packed", "together", "tile"),
    Phase.UPDATE.value: (
        *(*BATCH, *SHARING, "master_bytes", "kind", "checkpointing", "state_bytes", "host_bytes", "trainable"),
        *("packed", "together", "tile"),
    ),
    Phase.SYNC.value: (*BATCH, *ENGINE, *SHARING, "master_bytes", "quantized", "sleep"),
    Phase.REWARD.value: ("rows",),
    Phase.WAIT.value: ("ranks", "rows", "vllm", "kind"),
    Phase.IDLE.value: ("ranks", "rows", "generations", "updates"),
}
"""Facts that determine the seconds of a phase, by ``Phase`` value."""

OF_BATCH = (*BATCH_KNOBS, *RANK_KNOBS, "training_engine", "virtual_pipeline_size")
"""Knobs that ``batch_facts`` reads."""


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
    found["logprob_rows"] = c.number("logprob_rows", found["micro"])
    lengths, dynamic = presumed(task), c.has("dynamic_batching", True) > 0
    tokens = c.number("update_tokens", TOKENS_OF_BATCH)
    for name, budget in (("micro", tokens), ("logprob_rows", c.number("logprob_tokens", tokens))):
        found[name] = np.where(dynamic, np.maximum(1.0, budget // (lengths.prompt + lengths.mean)), found[name])
    return found


def batch_facts(task: Task, values: Mapping[str, KnobValue]) -> dict[str, float]:
    """Returns the facts that follow from the batch of one configuration."""
    batch = batch_of(values, task.resources)
    again = iterations_of(task)
    steps, accumulation = max(1, batch.steps), max(1, batch.accumulation)
    updates = math.lcm(int(steps * again), accumulation) // accumulation
    return {
        "gpus": float(training_gpus(values, task.resources)),
        "ranks": float(batch.ranks),
        "micro": float(max(1, batch.micro)),
        "rows": float(max(1, batch.rows) * updates) / again,
        "generations": max(1.0, updates * accumulation / (steps * again)),
        "updates": float(updates),
        "group": float(max(1, batch.group)),
        "aligned": float(accumulation % (steps * again) == 0),
        "together": _together(values, accumulation),
    }


def iterations_of(task: Task) -> float:
    """Returns how many times each generation is trained on."""
    return max(1.0, _number(task.passthrough.get("num_iterations"), 1.0))


def _together(values: Mapping[str, KnobValue], accumulation: int) -> float:
    """Returns the speedup of Megatron ranks that compute the same rows, over one rank; 1 elsewhere. Pipeline stages
    idle for (p - 1)/(v m) of the time of m micro-batches (Narayanan et al., arXiv 2104.04473, section 2.2)."""
    if values.get("training_engine") != "megatron":
        return 1.0
    stages = max(1.0, _number(values.get("pipeline_parallel_size"), 1.0))
    parts = max(1.0, _number(values.get("virtual_pipeline_size"), 1.0))
    return model_parallel(values) / (1.0 + (stages - 1.0) / (parts * accumulation))


def _training(task: Task, c: Columns) -> dict[str, Column]:
    kind = c.level("precision", {kind: float(n) for n, kind in enumerate(KINDS)}, KINDS.index("bf16"))
    tf32 = (kind == KINDS.index("fp32")) & (c.has("tf32", True) > 0) & (task.resources.device != "cpu")
    kind = np.where(tf32, KINDS.index("tf32"), kind)
    low = np.where(kind <= KINDS.index("tf32"), 4.0, 2.0)
    master, stage = c.level("master_weights", WIDTH, 4.0), c.number("zero_stage")
    megatron = c.has("training_engine", "megatron") > 0
    fsdp = (c.has("fsdp", "fsdp1", "fsdp2") > 0) & ~megatron
    resharded = fsdp & (c.has("fsdp_reshard_after_forward", False) == 0)
    offloaded = (c.has("offload_optimizer", "cpu", "nvme") > 0) | (c.has("fsdp_offload", True) > 0)
    return {
        "kind": kind,
        "master_bytes": master,
        # DeepSpeed's engine casts the model it is given (``_configure_distributed_model``).
        "held_bytes": np.where(stage >= 1, np.minimum(master, low), master),
        "sent_bytes": low,
        "zero": stage,
        "checkpointing": np.where(
            megatron, c.has("recompute_granularity", "full"), c.has("gradient_checkpointing", True)
        ),
        "state_bytes": c.each("optimizer", _states) * master,
        "shards": np.where((stage >= 3) | resharded, 2.0, (stage >= 1) | fsdp | megatron),
        "host_bytes": np.where(offloaded, 16.0, 0.0),
        "packed": c.has("remove_padding", True),
        "tile": np.maximum(1.0, c.number("logprob_token_chunk", UNLIMITED)),
        "trainable": c.full(_trainable(task)),
    }


def _states(optimizer: KnobValue | None) -> float:
    return STATES.get(str(optimizer), 0.5 if "8bit" in str(optimizer) else 2.0)


def _trainable(task: Task) -> float:
    """Returns the trained share of the weights: 1, or that of adapters."""
    if not is_lora(task.passthrough, task.resources.framework):
        return 1.0
    size = dimensions(task.resources.model)
    return trainable(task.passthrough, task.resources.framework, size) / size.parameters


def _engine(task: Task, c: Columns, ranks: Column, gpus: Column) -> dict[str, Column]:
    vllm = c.has("rollout_engine", *ENGINES)
    server = vllm * c.has("rollout_mode", "server")
    tensor = np.where(vllm > 0, np.maximum(1.0, c.number("tensor_parallel_size", 1.0)), 1.0)
    served = np.maximum(1.0, c.number("rollout_data_parallel_size", 1.0))
    replicas = np.where(server > 0, served, np.maximum(1.0, gpus // tensor))
    weights, quantized = c.level("rollout_dtype", WIDTH, 2.0), c.has("rollout_quantization", "fp8")
    compiled = vllm * (1.0 - c.has("enforce_eager", True))
    return {
        "vllm": vllm,
        "server": server,
        "tensor": tensor,
        "replicas": np.where(vllm > 0, replicas, ranks),
        "engine_bytes": np.where(quantized > 0, 1.0, weights),
        "quantized": quantized,
        "sleep": (vllm - server) * c.number("sleep_level"),
        "cache_bytes": np.where(c.each("kv_cache_dtype", lambda kind: str(kind).startswith("fp8")) > 0, 1.0, weights),
        "sequences": np.where(vllm > 0, c.number("max_num_seqs", 256.0), UNLIMITED),
        "graphs": compiled * (task.resources.device != "cpu"),
        "compiled": compiled,
        "prefix": vllm * (1.0 - c.has("prefix_caching", False)),
        "continuous": np.maximum(vllm, c.has("continuous_batching", True)),
    }


def _passes(task: Task, c: Columns, found: Mapping[str, Column]) -> Column:
    """Counts log-prob passes by TRL's rule: one of the policy if generation and update differ or vLLM's log-probs are
    corrected (not if the engine's log-probs are used), and one of the reference."""
    given = task.passthrough
    names = ("vllm_importance_sampling_correction", "importance_sampling_correction")
    corrected = (found["vllm"] > 0) & all(given.get(name) is not False for name in names)
    anew = (c.has("engine_logprobs", True) == 0) & (corrected | (found["aligned"] == 0))
    return np.where(anew, 1.0, 0.0) + float(_number(given.get("beta"), 0.0) != 0.0)


def _number(value: object, otherwise: float) -> float:
    """Returns a positive number or zero; ``otherwise`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return otherwise
    return float(value)


PHASES = tuple(USED)
"""``Phase`` values, in the order of a cycle."""
OFF = 1e9
"""Value of a knob's column where the knob cannot act."""
GENERATIONS = "generations"
"""Column that replaces ``steps_per_generation`` and ``gradient_accumulation_steps``: rollouts per cycle."""
NEIGHBOURS: Mapping[str, tuple[str, ...]] = {Phase.UPDATE.value: ("rollout_engine",)}
"""Knobs of another phase that also affect this phase: an engine next to the trainer takes caches and cores."""
BY_TOKENS = ("micro_batch_size", "logprob_rows")
"""Knobs that token budgets replace where batches are dynamic."""
_REPLACED = ("steps_per_generation", "gradient_accumulation_steps")


@dataclass
class PhaseRows:
    """The distinct input rows of one phase."""

    own: Mapping[str, Column]
    """Input of the learnt part by knob: the base-2 logarithm of a number, a code for a choice, or ``OFF``."""
    facts: Mapping[str, Column]
    """Input of the roofline."""
    index: NDArray[np.intp]
    """Index of each configuration's row."""

    kept: tuple[object, Mapping[str, Column], NDArray[np.bool_]] | None = field(default=None, compare=False, repr=False)
    """Cache: the last world that the roofline was computed for, its parts, and a mask of rows with this phase."""

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(next(iter(self.facts.values())))


Table = Mapping[str, PhaseRows]
"""Rows by ``Phase`` value."""


def _knobs_of(phase: str) -> tuple[str, ...]:
    names = [k.name for k in KNOBS.values() if k.name not in _REPLACED and k.acts_on(phase)]
    return (*names, *NEIGHBOURS.get(phase, ()), *((GENERATIONS,) if phase == Phase.GENERATE else ()))


KNOBS_OF: Mapping[str, tuple[str, ...]] = {phase: _knobs_of(phase) for phase in PHASES}
"""Knobs of the learnt part by ``Phase`` value: those that act on it by the catalogue."""
_KNOBS = tuple(sorted({name for names in KNOBS_OF.values() for name in names} - {GENERATIONS}))
_FACTS = tuple(sorted({name for names in USED.values() for name in names}))
_PLACES = {name: place for place, name in enumerate((*_KNOBS, GENERATIONS, *(f"{name}=" for name in _FACTS)))}
"""Column indices in the result of ``read``; a fact has ``=`` after its name."""


def is_number(name: str) -> bool:
    """Tells whether a knob's column contains logarithms; else it contains codes."""
    knob = KNOBS.get(name)
    if knob is None:
        return name == GENERATIONS
    return knob.kind in (Kind.INT, Kind.FLOAT) and knob.unit not in ("stage", "level")


def read(task: Task, configurations: tuple[Configuration, ...]) -> NDArray[np.float64]:
    """Returns knobs and facts of each configuration as a row that is independent of other configurations."""
    c = columns_of(configurations, task.resources.framework, task.resources.device)
    facts = facts_of(task, c)
    dynamic = c.has("dynamic_batching", True) > 0
    columns = [np.where(dynamic & (name in BY_TOKENS), OFF, _column(KNOBS[name], c)) for name in _KNOBS]
    return np.column_stack([*columns, np.log2(facts["generations"]), *(facts[name] for name in _FACTS)])


@lru_cache(maxsize=REMEMBERED)
def features(task: Task, configurations: tuple[Configuration, ...]) -> Table:
    """Returns the distinct rows of ``configurations`` by phase. Cached: a search asks repeatedly."""
    values, chance = read(task, configurations), np.random.default_rng(0)
    # Rows are told apart by sums of random numbers, one for each value of a column.
    marks = np.zeros(values.shape, dtype=np.uint64)
    for place in np.flatnonzero(np.any(values != values[:1], axis=0)):
        several, codes = np.unique(values[:, place], return_inverse=True)
        marks[:, place] = chance.integers(1 << 63, size=len(several), dtype=np.uint64)[codes.reshape(-1)]
    found = {}
    for phase, own in KNOBS_OF.items():
        columns = [_PLACES[name] for name in (*own, *(f"{name}=" for name in USED[phase]))]
        _, first, index = np.unique(marks[:, columns].sum(axis=1), return_index=True, return_inverse=True)
        few = values[first][:, columns].T
        knobs, facts = zip(own, few, strict=False), zip(USED[phase], few[len(own) :], strict=True)
        found[phase] = PhaseRows(dict(knobs), dict(facts), index.reshape(-1))
    return found


def _column(knob: Knob, c: Columns) -> Column:
    """Returns a knob's column: ``OFF`` where a knob that it depends on disables it."""
    found = c.each(knob.name, partial(_code, knob))
    for name, values in knob.needs.items():
        found = np.where(c.each(name, values.__contains__) > 0, found, OFF)
    return found


def _code(knob: Knob, value: KnobValue | None) -> float:
    if value is None:
        return OFF
    if not is_number(knob.name):  # a choice as a number: the same in every process, exact in a float
        return float(zlib.crc32(f"{type(value).__name__}:{value}".encode()))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return OFF
    return math.log2(max(float(value), 0.5 if knob.kind is Kind.INT else 1e-6))
