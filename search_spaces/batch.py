"""The batch algebra: ranks x micro-batch x accumulation = rows per update, in whole groups.

Rows are completions. A rank is one training process. Only arithmetic; the rules of legality are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from search_spaces.configuration import KnobValue, Resources
from search_spaces.knobs import defaults
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.build import ENGINES

TOLERANCE_PERCENT = 5
"""Largest deviation of rows per update from the baseline's, in per cent, if the ranks do not divide its rows."""

BATCH_KNOBS = ("micro_batch_size", "num_generations", "steps_per_generation", "gradient_accumulation_steps")
MODEL_PARALLEL = ("sequence_parallel_size", "training_tensor_parallel_size", "pipeline_parallel_size")
"""Knobs whose product is the number of ranks that compute the same rows together."""
RANK_KNOBS = ("rollout_engine", "rollout_mode", "rollout_gpus", "training_gpus", *MODEL_PARALLEL)
"""Knobs that decide the number of ranks."""


@dataclass(frozen=True)
class Batch:
    """A configuration's batch in numbers."""

    ranks: int
    micro: int
    accumulation: int
    group: int
    steps: int
    """Micro-batches that one generation serves."""

    @property
    def rows(self) -> int:
        """Completions in one optimizer update, over all ranks."""
        return self.ranks * self.micro * self.accumulation

    @property
    def rollout_rows(self) -> int:
        """Completions in one generation, over all ranks."""
        return self.ranks * self.micro * self.steps


def training_gpus(values: Mapping[str, KnobValue], resources: Resources) -> int:
    """Returns the number of training processes, at least 1: ``training_gpus``, else every GPU outside the rollout
    server."""
    left = max(1, resources.training_processes - serving_gpus(values, resources))
    return min(left, _whole(values.get("training_gpus"), 0) or left) if resources.gpus else left


def serving_gpus(values: Mapping[str, KnobValue], resources: Resources) -> int:
    """Returns the number of GPUs of the rollout server; 0 without a server."""
    unset = defaults(resources.framework)
    engine = values.get("rollout_engine", unset.get("rollout_engine"))
    mode = values.get("rollout_mode", unset.get("rollout_mode"))
    if engine not in ENGINES or mode != "server" or not resources.gpus:
        return 0
    return _whole(values.get("rollout_gpus", unset.get("rollout_gpus")), 0)


def held_gpus(values: Mapping[str, KnobValue], resources: Resources) -> int:
    """Returns the number of GPUs of a trial, including those of a rollout server; 0 on a CPU."""
    return training_gpus(values, resources) + serving_gpus(values, resources) if resources.gpus else 0


def served_by(gpus: int) -> dict[str, KnobValue]:
    """Returns the knobs that give ``gpus`` GPUs to a rollout server."""
    return {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": gpus}


def data_ranks(values: Mapping[str, KnobValue], resources: Resources) -> int:
    """Returns the number of data-parallel ranks: training GPUs divided by the GPUs that compute the same rows."""
    return max(1, training_gpus(values, resources) // model_parallel(values))


def model_parallel(values: Mapping[str, KnobValue]) -> int:
    """Returns the number of ranks that compute the same rows together (sequence, tensor or pipeline parallel)."""
    return math.prod(max(1, _whole(values.get(name), 1)) for name in MODEL_PARALLEL)


def batch_of(values: Mapping[str, KnobValue], resources: Resources) -> Batch:
    """Returns the batch of ``values``, with the framework's defaults for knobs that are not set."""
    unset = defaults(resources.framework)
    accumulation = _whole(values.get("gradient_accumulation_steps", unset.get("gradient_accumulation_steps")), 1)
    group = values.get("num_generations", resources.num_generations or unset.get("num_generations"))
    return Batch(
        ranks=data_ranks(values, resources),
        micro=_whole(values.get("micro_batch_size", unset.get("micro_batch_size")), 1),
        accumulation=accumulation,
        group=_whole(group, 1),
        steps=_whole(values.get("steps_per_generation"), accumulation),
    )


def normalised(values: Mapping[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values`` with the four batch knobs as numbers, so that equal batches compare equal."""
    batch = batch_of(values, resources)
    return {
        **values,
        "micro_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "num_generations": batch.group,
        "steps_per_generation": batch.steps,
    }


def accumulated(values: Mapping[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values``, if without an accumulation, with the one that gives ``resources.rows_per_update``."""
    if resources.rows_per_update is None or "gradient_accumulation_steps" in values:
        return dict(values)
    batch = batch_of(values, resources)
    steps = values.get("steps_per_generation", ACCUMULATION)
    accumulation, count = fit(batch.ranks, batch.micro, batch.group, steps, resources.rows_per_update)
    return {**values, "gradient_accumulation_steps": accumulation, "steps_per_generation": count}


def rows_allowed(rows: int, target: int, ranks: int) -> bool:
    """Tells whether ``rows`` may replace ``target``: equal, or within the tolerance if ``ranks`` does not divide it."""
    if target % ranks == 0:
        return rows == target
    return 100 * abs(rows - target) <= TOLERANCE_PERCENT * target


def on_policy(steps: int, accumulation: int) -> bool:
    """Tells whether every update trains on one or more whole generations, made just before it."""
    return steps <= accumulation and accumulation % steps == 0


def fit(
    ranks: int, micro: int, group: int, steps: KnobValue | Fraction, target: int, reuse: Fraction = Fraction(1)
) -> tuple[int, int]:
    """Returns ``(gradient_accumulation_steps, steps_per_generation)`` that bring an update closest to ``target`` rows.

    Args:
        micro: rows per rank and micro-batch.
        group: ``num_generations``.
        steps: wanted ``steps_per_generation``: a number, ``"accumulation"``, or a share of the accumulation.
        target: rows per update.
        reuse: updates one generation serves; more than 1 means off-policy.

    Returns:
        The closest legal pair, or the closest pair if none is legal; the rules then say why.
    """
    row_step = ranks * micro
    closest = max(1, (2 * target + row_step) // (2 * row_step))
    window = [closest]
    if target % ranks:
        low = max(1, -(-(100 - TOLERANCE_PERCENT) * target // (100 * row_step)))
        high = (100 + TOLERANCE_PERCENT) * target // (100 * row_step)
        window = sorted({*range(low, high + 1), closest}, key=lambda n: (abs(n * row_step - target), n))
    for accumulation in window:
        count = _steps(steps, accumulation)
        fresh = on_policy(count, accumulation) if reuse == 1 else Fraction(count, accumulation) == reuse
        if fresh and rows_allowed(accumulation * row_step, target, ranks) and (row_step * count) % group == 0:
            return accumulation, count
    return closest, _steps(steps, closest)


def _steps(steps: KnobValue | Fraction, accumulation: int) -> int:
    if steps == ACCUMULATION:
        return accumulation
    if not isinstance(steps, Fraction):
        return _whole(steps, accumulation)
    limit = accumulation * steps
    if steps >= 1:
        return max(1, int(limit))
    divisors = (n for n in range(max(1, int(limit)), 0, -1) if accumulation % n == 0)
    return next(divisors, 1)


def _whole(value: KnobValue | None, otherwise: int) -> int:
    """Returns ``value`` if it is an integer of at least 0, else ``otherwise``."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
