"""``python -m benchmarks.decisions [--budget 480 ...]``: what a study decides within a budget, on recorded costs.

Runs whole studies with the real loop, schedule, proposer and interval; time is simulated, so eight minutes of a GPU
take seconds. The truth is known here, so that what a study claims can be judged. The figure of merit is "s to 5 %":
the seconds of budget a study needs to a proven gain within 5 % of the best configuration.

Machines (``--machine``):
  h100        one H100, 1.5B parameters, 128 rows, the best case: cycles as TRL's own trainer had them, processes kept
  h100-cold   nothing compiled, nothing forked, processes that serve three trials, cycles repeated to settle
  h200        the visit of 2026-11-28 as it was: slow first cycles, and vLLM's engine crashes whenever it starts
  h200-once   the same, but vLLM's engine crashes only when it first starts

Examples:
  python -m benchmarks.decisions                              # h100, ours, all budgets, 20 studies each
  python -m benchmarks.decisions --budget 480 --studies 3 --show    # and what was tried
  python -m benchmarks.decisions --arms ours,coordinate,tpe,gp,expert --budget 480 900
  python -m benchmarks.decisions --arms own-random --budget 3600 --studies 1 --at-once 1 8
  python -m benchmarks.decisions --arms tpe,gp --record FILE      # stop and go on as often as you like
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from autotune.errors import AutotuneError, UsageError
from benchmarks.decisions import record, report
from benchmarks.decisions.machine import Costs
from benchmarks.decisions.studies import Place, h100
from benchmarks.worlds.arms import ARMS, lacks

BUDGETS = (300.0, 400.0, 480.0, 600.0, 900.0)
STUDIES = 20
MACHINES = tuple(str(costs) for costs in Costs)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.decisions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    budgets = " ".join(f"{b:.0f}" for b in BUDGETS)
    made.add_argument(
        "--budget", type=float, nargs="+", default=list(BUDGETS), metavar="S", help=f"seconds ({budgets})"
    )
    made.add_argument("--arms", default="ours", metavar="NAMES", help=f"with commas, of {', '.join(ARMS)} (ours)")
    made.add_argument("--machine", nargs="+", default=["h100"], metavar="NAME", help=f"of {', '.join(MACHINES)} (h100)")
    made.add_argument("--studies", type=int, default=STUDIES, metavar="N", help=f"of each arm and budget ({STUDIES})")
    made.add_argument("--seed", type=int, default=0, metavar="S", help="of the first study; the others follow (0)")
    made.add_argument(
        "--at-once", type=int, nargs="+", default=[1], metavar="N", help="trials side by side, a GPU for each (1)"
    )
    made.add_argument("--nodes", type=int, default=1, metavar="N", help="that these GPUs are on, equally many each (1)")
    made.add_argument(
        "--json", action="store_true", help="the first machine and arm by budget, all of them under 'all'"
    )
    made.add_argument("--show", action="store_true", help="also every trial of every study, on standard error")
    made.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append every study to FILE; studies that are in it are not run again",
    )
    return made


def place_of(name: str) -> Place:
    """Raises ``UsageError``: there is no such machine."""
    if name not in MACHINES:
        raise UsageError(f"--machine {name}: there is no such machine; those there are: {', '.join(MACHINES)}")
    return h100(Costs(name))


def checked(given: argparse.Namespace) -> list[str]:
    """The arms asked for that can run; what cannot is named on standard error. Raises ``UsageError``: bad input."""
    if given.studies < 1:
        raise UsageError(f"--studies {given.studies}: expected a whole number above 0")
    if min(given.at_once) < 1:
        raise UsageError(f"--at-once {min(given.at_once)}: expected a whole number above 0")
    if given.nodes < 1 or any(number % given.nodes for number in given.at_once):
        raise UsageError(f"--nodes {given.nodes}: expected a number that divides each of --at-once")
    for budget in given.budget:
        if not budget > 0:
            raise UsageError(f"--budget {budget:g}: expected seconds above 0")
    wanted = [name.strip() for name in given.arms.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in ARMS]
    if unknown or not wanted:
        raise UsageError(f"--arms {given.arms}: expected names with commas, of {', '.join(ARMS)}")
    for name in wanted:
        if why := lacks(name):
            record.say(f"left out: {name}: {why}")
    able = [name for name in wanted if not lacks(name)]
    if not able:
        raise UsageError("--arms: none of them can run here")
    return able


def go(given: argparse.Namespace) -> None:
    """Runs all that was asked for and prints it. Raises ``UsageError``: bad input."""
    arms = checked(given)
    found: list[dict[str, Any]] = []
    rows = []
    for machine in given.machine:
        place = place_of(machine)
        for arm, budget, at_once in itertools.product(arms, given.budget, given.at_once):
            name = named(place.name, at_once, given.nodes)
            seeds = range(given.seed, given.seed + given.studies)
            more = {"show": given.show, "at_once": at_once, "nodes": given.nodes}
            own = report.figures(record.studies(place, arm, ARMS[arm], budget, seeds, given.record, name=name, **more))
            found.append({"machine": name, "arm": arm, "budget": budget, **own})
            rows.append(report.row(name, arm, budget, own))
    if given.json:
        print(json.dumps({"budgets": _by_budget(found, given.machine[0], arms[0]), "all": found}))
    else:
        print(report.table(rows))


def _by_budget(found: Sequence[Mapping[str, Any]], machine: str, arm: str) -> dict[str, Any]:
    return {f"{f['budget']:g}": f for f in found if f["machine"] == machine and f["arm"] == arm}


def named(machine: str, at_once: int, nodes: int = 1) -> str:
    """``h100 x 8``: so many of it; ``h100 x 32 on 4 nodes``."""
    across = f" on {nodes} nodes" if nodes > 1 else ""
    return machine if at_once == 1 else f"{machine} x {at_once}{across}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 2 for bad input."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    try:
        go(parser().parse_args(arguments))
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
