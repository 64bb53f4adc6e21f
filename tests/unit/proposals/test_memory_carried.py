"""A memory model that begins with earlier studies' peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import EarlierTrials, Task
from autotune.proposals.memory import MemoryModel
from autotune.proposals.memory.model import SCALES, scaled
from tests.unit.proposals.test_memory_model import CPU, CPU_VALUES, GIB, GPU, every, measured, out_of_memory

THERE = replace(CPU, max_completion_length=512, memory_limit=60 * GIB)
POOL = every(CPU_VALUES, 37)
TRUTH = np.random.default_rng(3).uniform(0.6, 1.5, len(SCALES))


def peaks(task: Task, chosen: Sequence[Configuration], truth: np.ndarray = TRUTH) -> np.ndarray:
    found: np.ndarray = (scaled(task, tuple(chosen))[-1] @ truth).max(axis=1)
    return found


def trials(task: Task, seed: int, count: int, truth: np.ndarray = TRUTH) -> list[Trial]:
    draw = np.random.default_rng(seed)
    chosen = [POOL[i] for i in draw.choice(len(POOL), size=count, replace=False)]
    heights = peaks(task, chosen, truth) * np.exp(0.02 * draw.standard_normal(count))
    return [measured(i, c, p) for i, (c, p) in enumerate(zip(chosen, heights.tolist(), strict=True))]


def error(model: MemoryModel) -> float:
    return float(np.mean(np.abs(np.log(model.forecast(POOL).peak / peaks(CPU, POOL)))))


def there(truth: np.ndarray = TRUTH) -> EarlierTrials:
    return EarlierTrials(THERE, tuple(trials(THERE, 8, 40, truth)), 1.0)


def test_a_study_like_it_starts_it_ahead() -> None:
    assert error(MemoryModel.before(CPU, [there()])) < 0.9 * error(MemoryModel.before(CPU))
    assert np.array_equal(
        MemoryModel.before(CPU, [there()]).factors[0].covariance, MemoryModel.before(CPU).factors[0].covariance
    ), "and no surer"


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_one_of_another_memory_misleads_no_further_than_the_formulas_are_doubted(factor: float) -> None:
    some = trials(CPU, 1, 6)
    misled, alone = MemoryModel.before(CPU, [there(factor * TRUTH)]), MemoryModel.before(CPU)
    assert np.all(np.abs(misled.factors[0].logs) <= np.array(list(SCALES.values())) + 1e-12)
    assert error(misled.fitted(CPU, some)) < 1.5 * error(alone.fitted(CPU, some)) + 0.02


def test_what_ran_out_of_memory_elsewhere_bounds_nothing_here() -> None:
    failed = [out_of_memory(i, c, 50 * GIB) for i, c in enumerate(POOL[:10])]
    model = MemoryModel.before(CPU, [EarlierTrials(THERE, tuple(failed), 0.0)])
    assert np.array_equal(model.forecast(POOL).peak, MemoryModel.before(CPU).forecast(POOL).peak)


def test_another_machines_pools_say_nothing() -> None:
    begun = MemoryModel.before(GPU, [there()])
    assert all(np.all(factors.logs == 0.0) for factors in begun.factors)
