"""Answers a question: the best predicted configurations, and the smallest machines that fit. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from autotune.domain import Configuration
from autotune.errors import UsageError
from autotune.forecast.answer import Accuracy, Load, Machine, Need, Needs, Plan, Predicted
from autotune.forecast.forecasting import Forecasts
from autotune.forecast.gpus import KnownGpu
from autotune.forecast.question import PlanRequest, Question
from autotune.forecast.search import Found, SearchScope, search
from autotune.proposals.forecasts import SURE
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS
from search_spaces.space import SearchSpace

Models = Callable[[Question], Forecasts]
"""Function that returns the models for a question."""

BEST = 5
NEED_RANK = 16
"""LoRA's default rank in ``needs``."""

COUNTS = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8))
"""Examined machines as (GPUs of a node, nodes), ascending."""
LEAN: Mapping[str, tuple[KnobValue, ...]] = {
    "gpu_memory_utilization": (0.2, 0.3, 0.5, 0.7, 0.9),
    "tensor_parallel_size": (1, 2, 4, 8),
    "sleep_level": (0, 2),
    "micro_batch_size": (1, 2),
}
"""Knob values that take the least memory; several where the least depends on the machine."""
LEAN_ZERO: Mapping[str, tuple[KnobValue, ...]] = {"zero_stage": (0, 2, 3), "weight_sync_batches": (1, 8, 64)}
LEAN_FSDP: Mapping[str, tuple[KnobValue, ...]] = {"fsdp": ("fsdp1", "fsdp2"), "weight_sync_layered": (False, True)}
OFFLOADS: Mapping[str, tuple[KnobValue, ...]] = {
    **dict.fromkeys(("offload_optimizer", "offload_parameters"), ("none", "cpu")),
    **dict.fromkeys(("fsdp_offload", "rollout_offload_model", "rollout_offload_optimizer"), (False, True)),
}
LEAN_FIXED: Mapping[str, KnobValue] = {
    "rollout_engine": "vllm",
    "rollout_mode": "colocate",
    "gradient_checkpointing": True,
    "logprob_rows": 1,
}
LEAST_BYTES = 2
"""Least bytes of a parameter over all GPUs: one copy in bf16, in the rollout engine."""
FULL, OFFLOADED, LORA = "full", "full, offloaded", "LoRA"


def plan(question: Question, models: Models, accuracy: Accuracy, count: int = BEST) -> Plan:
    """Returns the best ``count`` configurations, and the best that rounds or learns differently if that is better.

    Raises:
        UsageError: no configuration is legal, or these GPUs cannot divide the rows.
    """
    missing = question.space.require.problem(question.resources)
    if missing:
        raise UsageError(f"{question.space_name}: {missing}")
    forecasts, baseline = models(question), question.baseline()
    own = question.paper is not None
    scope = SearchScope(question.space, baseline, question.resources, same_learning=True, own=own)
    same, freer = search(scope, forecasts, count), search(replace(scope, same_learning=False), forecasts, 1)
    same = same or freer
    if same is None:
        raise UsageError(f"no combination of {question.space_name} is legal there{_why_not(question, baseline)}")
    counted = same.counted if freer is None else freer.counted
    best = tuple(forecasts.predicted(same.table, index) for index in same.best)
    likely = tuple(found for found in best if found.fits >= SURE)
    return Plan(
        load=question.load,
        machine=question.machine,
        space=question.space_name,
        legal=counted.legal,
        exact=counted.exact,
        looked_at=same.looked_at + (0 if freer is None else freer.looked_at),
        fitting=same.fitting + (0 if freer is None else freer.fitting),
        baseline=forecasts.predicted(forecasts.table((baseline,)), 0),
        best=likely or best[:1],
        permitted=_permitted(forecasts, same, freer),
        accuracy=accuracy,
        notes=question.notes,
        config=question.paper.request.config_name if question.paper else "",
    )


def _why_not(question: Question, baseline: Configuration) -> str:
    """Returns the rules that the given configuration breaks; for a space, the rule that removes most combinations."""
    explanation = question.space.explain(baseline, question.resources)
    examples = [explanation.examples[rule].sentence for rule in explanation.removed]
    if explanation.combinations == 1:
        return f": {' '.join(examples)}" if examples else ""
    return f"; rule {next(iter(explanation.removed))} removes most: {examples[0]}" if examples else ""


def _permitted(forecasts: Forecasts, same: Found, freer: Found | None) -> Predicted | None:
    if freer is None or not freer.best:
        return None
    there, here = freer.best[0], same.best[0]
    if freer.table.score()[there] <= same.table.score()[here] + 1e-9:
        return None
    return forecasts.predicted(freer.table, there)


def needs(request: PlanRequest, gpus: Iterable[KnownGpu], models: Models) -> Needs:
    """Returns the smallest machine that fits, with its configuration, for each kind of GPU and way of training.

    If a machine cannot divide the rows evenly, more rows are used: memory hardly depends on the number of
    micro-batches.
    """
    found = [_need(replace(request, lora_rank=rank), gpu, how, models) for gpu in gpus for how, rank in _ways(request)]
    gpus_each, nodes = COUNTS[-1]
    load = request.load(Machine("", 0, *COUNTS[0]))
    more = sorted({n.rows for n in found if n.rows and request.rows_per_update not in (None, n.rows)})
    notes = [f"where {load.rows_per_update} rows cannot be shared: {', '.join(map(str, more))}"] if more else []
    largest = f"{nodes} nodes x {gpus_each}"
    return Needs(load, tuple(found), largest, (*request.architecture.notes, *notes))


def _ways(request: PlanRequest) -> tuple[tuple[str, int | None], ...]:
    if request.lora_rank is not None:
        return ((LORA, request.lora_rank),)
    return ((FULL, None), (OFFLOADED, None), (LORA, NEED_RANK))


def _need(request: PlanRequest, gpu: KnownGpu, how: str, models: Models) -> Need:
    least = LEAST_BYTES * request.architecture.parameters
    for each, nodes in COUNTS:
        machine = Machine(gpu.name, gpu.memory, each, nodes)
        if machine.total * machine.memory < least:
            continue
        load = _shared(request.load(machine), machine)
        found = _lean_best(Question(load, machine, gpu, how, lean(how, request.framework)), models)
        if found is not None:
            return Need(how, gpu.name, gpu.memory, machine, found, request.lora_rank, load.rows_per_update)
    return Need(how, gpu.name, gpu.memory, None, lora_rank=request.lora_rank)


def _shared(load: Load, machine: Machine) -> Load:
    """Returns ``load`` with the next number of rows that the machine's GPUs can divide into whole groups."""
    step = math.lcm(machine.total, load.num_generations)
    rows = load.rows_per_update
    return load if rows % machine.total == 0 else replace(load, rows_per_update=math.ceil(rows / step) * step)


def lean(how: str, framework: str = "trl") -> SearchSpace:
    """Returns the space with the least memory in ``framework``; it offloads unless ``how`` is ``FULL``."""
    facts = facts_of(framework)
    listed = {**LEAN, **(LEAN_ZERO if facts.has_deepspeed else LEAN_FSDP), **(OFFLOADS if how != FULL else {})}
    out = {"fsdp_offload", "rollout_offload_model", "rollout_offload_optimizer"} if facts.has_deepspeed else set()
    having = {n: v for n, v in listed.items() if framework in KNOBS[n].frameworks and n not in out}
    return SearchSpace(having, Configuration(LEAN_FIXED))


def _lean_best(question: Question, models: Models) -> Predicted | None:
    """Returns the fastest configuration that is likely to fit; ``None`` without one, or if no split of rows works."""
    try:
        baseline = question.baseline()
    except UsageError:
        return None
    candidates = question.space.candidates(baseline, question.resources, same_learning=True)
    if not candidates:
        return None
    forecasts = models(question)
    likely = forecasts.peaks.forecast(candidates).fits >= SURE
    if not likely.any():  # most machines are too small: of those nobody asks how fast they are
        return None
    table = forecasts.table(tuple(itertools.compress(candidates, likely)))
    return forecasts.predicted(table, int(table.score().argmax()))
