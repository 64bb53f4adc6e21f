"""``python -m benchmarks.worlds [--world W] [--arm A] [--budget S] [--studies N]``: whole studies in simulated worlds.

Runs studies with the real loop, schedule, store and interval in simulated worlds (``benchmarks/worlds``), each with the
space that users get, and judges the answers by what is true there. Without options: every world at its own budgets,
every arm, 20 studies each. Who writes the search reads none of the worlds.

Examples:
  python -m benchmarks.worlds --json --record FILE                 # stop and go on as often as you like
  python -m benchmarks.worlds --world one-gpu --arm ours coordinate --budget 480 --studies 4
  python -m benchmarks.worlds --world ragged --arm ours --studies 1 --show         # and what was tried
  python -m benchmarks.worlds --calibration --studies 4            # of forecasts after 8 trials, in every world
  python -m benchmarks.worlds --calibration 0                      # and before any
  python -m benchmarks.worlds --world one-gpu --latency 1000       # CPU seconds of a proposal after so many trials
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna

from autotune.errors import AutotuneError, UsageError
from benchmarks.decisions import record, report
from benchmarks.worlds import calibration, latency
from benchmarks.worlds.arms import ARMS, DEFAULT, lacks
from benchmarks.worlds.places import WORLDS, place_of

STUDIES = 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.worlds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--world", nargs="+", default=list(WORLDS), metavar="W", help=f"of {', '.join(WORLDS)} (all)")
    arms = f"of {', '.join(ARMS)} ({' '.join(DEFAULT)})"
    made.add_argument("--arm", nargs="+", default=list(DEFAULT), metavar="A", help=arms)
    made.add_argument("--budget", type=float, nargs="+", metavar="S", help="seconds (each world's own)")
    made.add_argument("--studies", type=int, default=STUDIES, metavar="N", help=f"of each arm and budget ({STUDIES})")
    made.add_argument("--seed", type=int, default=0, metavar="S", help="of the first study; the others follow (0)")
    made.add_argument(
        "--calibration", type=int, nargs="?", const=calibration.TRIALS, metavar="N",
        help=f"judge forecasts after N search trials instead of studies ({calibration.TRIALS})",
    )  # fmt: skip
    made.add_argument("--latency", type=int, metavar="N", help="CPU seconds of a proposal after N trials instead")
    made.add_argument("--json", action="store_true", help="figures by world, budget and arm")
    made.add_argument("--show", action="store_true", help="also every trial of every study, on standard error")
    made.add_argument("--record", type=Path, metavar="FILE", help="append every study; what is in it is not run again")
    return made


def check(options: argparse.Namespace) -> None:
    """Raises ``UsageError``: bad input."""
    for option, names, there in (("--world", options.world, WORLDS), ("--arm", options.arm, ARMS)):
        unknown = [name for name in names if name not in there]
        if unknown:
            raise UsageError(f"{option} {unknown[0]}: there is none of that name; those there are: {', '.join(there)}")
    if options.studies < 1:
        raise UsageError(f"--studies {options.studies}: expected a whole number above 0")
    if options.latency is not None and options.latency < 1:
        raise UsageError(f"--latency {options.latency}: expected a whole number above 0")
    if options.calibration is not None and options.calibration < 0:
        raise UsageError(f"--calibration {options.calibration}: expected a whole number of at least 0")
    for budget in options.budget or ():
        if not budget > 0:
            raise UsageError(f"--budget {budget:g}: expected seconds above 0")


def calibrate(options: argparse.Namespace) -> None:
    """Prints how far forecasts hold in each world, or how long a proposal takes."""
    seeds = range(options.seed, options.seed + options.studies)
    if options.latency:
        found = {name: latency.figures(place_of(name), options.latency, options.seed) for name in options.world}
    else:
        found = {name: calibration.figures(place_of(name), seeds, options.calibration) for name in options.world}
    if options.json:
        print(json.dumps({"latency" if options.latency else "calibration": found}))
        return
    for name, own in found.items():
        print(f"{name}: " + ", ".join(f"{figure.replace('_', ' ')} {value:.3f}" for figure, value in own.items()))


def judge(options: argparse.Namespace) -> None:
    """Runs the studies and prints their figures. Raises ``UsageError``: a bad record, or nothing can run."""
    seeds = range(options.seed, options.seed + options.studies)
    for arm in [arm for arm in options.arm if lacks(arm)]:
        record.say(f"left out: {arm}: {lacks(arm)}")
    able = [arm for arm in options.arm if not lacks(arm)]
    if not able:
        raise UsageError("--arm: none of them can run here")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    rows = []
    for name in options.world:
        place = place_of(name)
        for budget in options.budget or WORLDS[name].budgets:
            for arm in able:
                own = record.studies(place, arm, ARMS[arm], budget, seeds, options.record, show=options.show)
                figures = report.figures(own)
                found.setdefault(name, {}).setdefault(f"{budget:g}", {})[arm] = figures
                rows.append(report.row(name, arm, budget, figures))
    print(json.dumps({"worlds": found}) if options.json else report.table(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 2 for bad input."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    options = parser().parse_args(arguments)
    try:
        check(options)
        (judge if options.calibration is None and options.latency is None else calibrate)(options)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
