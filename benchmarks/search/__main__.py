"""``python -m benchmarks.search --table FILE... [--seeds 20] [--arms grey,tpe,...]``: searches replayed on tables.

Prints for each table whether it can tell searches apart, criterion by criterion; then one table of all arms. An arm
that cannot run here is named with what it lacks. All arms take hours; ``--jobs 2`` runs two at a time.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna

from autotune.errors import AutotuneError, UsageError
from autotune.tables.files import read
from benchmarks.search import discrimination, noise, report
from benchmarks.search.arms import ARMS, Arm
from benchmarks.search.models import Known, models_of
from benchmarks.search.running import searched
from benchmarks.search.world import World

FEWEST_SEEDS = 20
"""Of figures that are published; fewer only try the command, and the output says so."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.search", description=__doc__.split("\n\n")[1] if __doc__ else ""
    )
    made.add_argument("--table", required=True, nargs="+", type=Path, metavar="FILE", help="from `autotune sweep`")
    made.add_argument("--seeds", type=int, default=FEWEST_SEEDS, help=f"searches of each arm ({FEWEST_SEEDS})")
    made.add_argument("--arms", default="", metavar="NAMES", help=f"with commas; all that can run: {', '.join(ARMS)}")
    made.add_argument("--trials", type=int, default=100, help="of each search, the baseline aside (100)")
    made.add_argument("--judge", action="store_true", help="only say whether the tables count")
    made.add_argument("--jobs", type=int, default=1, help="searches at a time (1); the figures are the same")
    return made


def chosen(names: str, known: Sequence[Known]) -> tuple[list[Arm], list[str]]:
    """The arms to run, and a sentence for each that was left out.

    Raises:
        UsageError: there is no arm of a name, or none that can run.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(ARMS)
    unknown = [name for name in wanted if name not in ARMS]
    if unknown:
        raise UsageError(f"--arms {unknown[0]}: there is no such arm; those there are: {', '.join(ARMS)}")
    lacking = {name: next((w for k in known if (w := ARMS[name].lacks(k))), "") for name in wanted}
    running = [ARMS[name] for name in wanted if not lacking[name]]
    left_out = [f"left out: {name}: {why}" for name, why in lacking.items() if why]
    if not running:
        raise UsageError("; ".join(left_out))
    return running, left_out


def go(arguments: Sequence[str]) -> int:
    """Exit status 3 if a table does not count.

    Raises:
        UsageError: bad input.
    """
    given = parser().parse_args(arguments)
    for name in ("seeds", "trials", "jobs"):
        if getattr(given, name) < 1:
            raise UsageError(f"--{name} {getattr(given, name)}: expected a whole number above 0")
    worlds = [World(read(path)) for path in given.table]
    names = [world.name for world in worlds]
    if len(set(names)) < len(names):
        raise UsageError("--table: two of the files have the same name")
    known = [models_of(world.task, world.table.header.probe) for world in worlds]
    verdicts = [discrimination.criteria(world, models) for world, models in zip(worlds, known, strict=True)]
    for world, found in zip(worlds, verdicts, strict=True):
        print(report.judged(world.name, found))
        print(noise.sentence(noise.noise_of(world)) + "\n")
    counting = all(discrimination.counts(found) for found in verdicts)
    if not given.judge:
        _compare(worlds, known, given)
    return 0 if counting else 3


def _compare(worlds: Sequence[World], known: Sequence[Known], given: argparse.Namespace) -> None:
    arms, left_out = chosen(given.arms, known)
    courses, broken = searched(worlds, known, arms, given, given.jobs)
    print(report.drawn(report.lines(courses), given.trials))
    print(
        f"\nmedians of trials over {given.seeds} seeds (95 % bootstrap intervals), the baseline aside; what the row to "
        f"be returned lacks of the best after {report.AT} trials; OOMs, and the share of seconds lost to them, in the "
        "first 30 trials; last: trials to 5 % of the best peer with our filter, divided by ours"
    )
    print(known[0].sentence())
    if given.seeds < FEWEST_SEEDS:
        print(f"{given.seeds} seeds only try the command: {FEWEST_SEEDS} or more are what figures are stated from")
    for sentence in [*left_out, *broken]:
        print(sentence)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 2 for bad input, 3 if a table does not count."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    try:
        return go(sys.argv[1:] if arguments is None else arguments)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
