"""What a search loses when trials run side by side, on recorded tables.

``python -m benchmarks.search.beside --table FILE... [--at-once 1 8] [--arms grey,start] [--seeds 10] [--trials 40]``

With k at once a proposal knows no result of the k - 1 trials before it. Printed: what the row to be returned lacks of
the best row's tokens/hour after so many trials, mean and median over seeds. ``start`` is the product's TPE (constant
liar).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna

from autotune.tables.files import read
from benchmarks.search.arms import ARMS
from benchmarks.search.models import models_of
from benchmarks.search.replay import replay
from benchmarks.search.world import World

AFTER = (10, 20, 40)
"""Trials."""


def lacking(world: World, arm: str, at_once: int, seeds: int, trials: int) -> list[tuple[float, ...]]:
    """For each seed, what is missing after each trial."""
    known = models_of(world.task, world.table.header.probe)
    found = []
    for seed in range(seeds):
        session = ARMS[arm].begin(world, known, seed)
        found.append(replay(world, arm, session, seed, most=trials, beside=at_once - 1).missing)
    return found


def row(world: World, arm: str, at_once: int, found: Sequence[Sequence[float]]) -> str:
    """Of the table."""
    cells = []
    for after in AFTER:
        if after <= len(found[0]):
            values = [one[after - 1] for one in found]
            cells.append(f"{statistics.fmean(values):.1%}; {statistics.median(values):.1%}")
    return f"| {world.name} | {arm} | {at_once} | {len(found)} | " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--table", required=True, nargs="+", type=Path, metavar="FILE", help="from `autotune sweep`")
    made.add_argument("--at-once", type=int, nargs="+", default=[1, 8], metavar="N", help="trials side by side (1 8)")
    made.add_argument("--arms", default="grey,start", metavar="NAMES", help="with commas (grey,start)")
    made.add_argument("--seeds", type=int, default=10, metavar="N", help="searches of each (10)")
    made.add_argument("--trials", type=int, default=40, metavar="N", help="of each search (40)")
    given = made.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    heads = [f"after {n}" for n in AFTER if n <= given.trials]
    print(f"| table | sampler | at once | seeds | {' | '.join(heads)} |\n|{'---|' * (4 + len(heads))}")
    for path in given.table:
        world = World(read(path))
        for arm in given.arms.split(","):
            for at_once in given.at_once:
                found = lacking(world, arm, at_once, given.seeds, given.trials)
                print(row(world, arm, at_once, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
