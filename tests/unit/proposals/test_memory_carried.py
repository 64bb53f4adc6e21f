"""A memory model that begins with earlier studies' peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Trial
from autotune.proposals.forecasts import EarlierTrials, Task
from autotune.proposals.memory import MemoryModel, carried_over, features
from autotune.proposals.memory.features import PARTS
from autotune.proposals.memory.model import ENOUGH
from tests.unit.proposals.test_memory_model import CPU, CPU_VALUES, GIB, GPU, every, measured, out_of_memory

THERE = replace(CPU, max_completion_length=512, memory_limit=60 * GIB)
POOL = every(CPU_VALUES, 37)
TRUTH = np.random.default_rng(3).uniform(0.6, 1.5, len(PARTS))


def peaks(task: Task, chosen: Sequence[Configuration], truth: np.ndarray = TRUTH) -> np.ndarray:
    found: np.ndarray = (features(task, chosen)[-1] @ truth).max(axis=1)
    return found


def trials(task: Task, seed: int, count: int, truth: np.ndarray = TRUTH) -> list[Trial]:
    draw = np.random.default_rng(seed)
    chosen = [POOL[i] for i in draw.choice(len(POOL), size=count, replace=False)]
    heights = peaks(task, chosen, truth) * np.exp(0.02 * draw.standard_normal(count))
    return [measured(i, c, p) for i, (c, p) in enumerate(zip(chosen, heights.tolist(), strict=True))]


def beginning(*studies: EarlierTrials) -> MemoryModel:
    return MemoryModel.before(CPU, carried_over(CPU, studies))


def error(model: MemoryModel) -> float:
    return float(np.mean(np.abs(np.log(model.forecast(POOL).peak / peaks(CPU, POOL)))))


def there(truth: np.ndarray = TRUTH, distance: float = 1.0) -> EarlierTrials:
    return EarlierTrials(THERE, tuple(trials(THERE, 8, 40, truth)), distance)


def test_a_study_like_it_starts_it_ahead() -> None:
    assert error(beginning(there())) < 0.8 * error(MemoryModel.before(CPU))
    some = trials(CPU, 1, 2)
    assert error(beginning(there()).fitted(CPU, some)) < error(MemoryModel.before(CPU).fitted(CPU, some))


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_one_of_another_memory_is_left_aside_after_a_few_trials(factor: float) -> None:
    some = trials(CPU, 1, 4)
    misled, alone = beginning(there(factor * TRUTH)).fitted(CPU, some), MemoryModel.before(CPU).fitted(CPU, some)
    assert np.allclose(misled.forecast(POOL).peak, alone.forecast(POOL).peak)


def test_what_ran_out_of_memory_elsewhere_bounds_nothing_here() -> None:
    failed = [out_of_memory(i, c, 50 * GIB) for i, c in enumerate(POOL[:10])]
    model = beginning(EarlierTrials(THERE, tuple(failed), 0.0))
    assert np.array_equal(model.forecast(POOL).peak, MemoryModel.before(CPU).forecast(POOL).peak)


def test_a_study_with_enough_of_its_own_needs_none() -> None:
    some = trials(CPU, 1, ENOUGH)
    begun, alone = beginning(there()).fitted(CPU, some), MemoryModel.before(CPU).fitted(CPU, some)
    assert np.array_equal(begun.forecast(POOL).peak, alone.forecast(POOL).peak)


def test_another_machines_pools_say_nothing() -> None:
    assert [len(pool.level) for pool in carried_over(GPU, (there(),))] == [0, 0]


def test_a_nearer_study_counts_for_more() -> None:
    near, far = (beginning(there(distance=d)).forecast(POOL).spread for d in (0.0, 8.0))
    assert np.median(near) < np.median(far)
    assert np.median(far) <= np.median(MemoryModel.before(CPU).forecast(POOL).spread)
