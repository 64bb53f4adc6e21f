"""Every arm on every table with every seed: one after the other or several at a time, with the same courses."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from benchmarks.search.arms import Arm
from benchmarks.search.models import Known
from benchmarks.search.replay import Course, replay
from benchmarks.search.world import World

_shared: tuple[Sequence[World], Sequence[Known], Sequence[Arm]] = ((), (), ())
"""What forked processes know without being told."""


def searched(
    worlds: Sequence[World], known: Sequence[Known], arms: Sequence[Arm], given: Namespace, jobs: int = 1
) -> tuple[list[Course], list[str]]:
    """Every arm on every world with every seed, and a sentence for each peer that broke off.

    What goes wrong inside a package of others' costs its own arm on that table, not the others.

    Args:
        worlds: the tables.
        known: the models of each.
        arms: the searches.
        given: ``seeds`` and ``trials``.
        jobs: processes that search.
    """
    courses: list[Course] = []
    broken = []
    with _pool(worlds, known, arms, jobs) as pool:
        for place, world in enumerate(worlds):
            for which, arm in enumerate(arms):
                try:
                    courses += _of_arm(place, which, given, pool)
                    print(f"{world.name}: {arm.name} done", file=sys.stderr, flush=True)
                except Exception as error:
                    if arm.is_ours or not arm.needs:
                        raise
                    broken.append(f"broke off: {arm.name} on {world.name}: {type(error).__name__}: {error}")
    return courses, broken


def _of_arm(place: int, which: int, given: Namespace, pool: Executor | None) -> list[Course]:
    """Runs one arm on one world with every seed."""
    run = functools.partial(_course, place, which, trials=given.trials)
    return [run(seed) for seed in range(given.seeds)] if pool is None else list(pool.map(run, range(given.seeds)))


def _course(place: int, which: int, seed: int, trials: int) -> Course:
    world, models, arm = _shared[0][place], _shared[1][place], _shared[2][which]
    session = arm.begin(world, models, seed)
    return replay(world, arm.name, session, seed, most=trials, memory_filter=arm.memory_filter(world, models))


@contextmanager
def _pool(worlds: Sequence[World], known: Sequence[Known], arms: Sequence[Arm], jobs: int) -> Iterator[Executor | None]:
    """Forked processes, which have the tables already; ``None`` for one job."""
    global _shared  # noqa: PLW0603 (a fork is told nothing else)
    before, _shared = _shared, (worlds, known, arms)
    try:
        if jobs == 1:
            yield None
            return
        # Whatever a peer computes with is loaded by the forked processes, and then has a core each.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            yield pool
    finally:
        _shared = before
