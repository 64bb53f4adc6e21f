"""``python -m benchmarks.time_prior [--table FILE ...] [--every-knob]``: the prior of times alone, against real trials.

Tables are from ``autotune sweep``; ``--every-knob`` is the recorded table of two ranks (``tables/every-knob-cpu.md``),
of whose device nothing was measured. Nothing is fitted. Of each table is printed how the logarithms of measured and
expected seconds of a cycle differ: their mean (one machine's level, which a first trial tells), their scatter around it
beside that of the cycles themselves (what a search has to learn), and the correlation of the two orders; then the mean
by phase for each engine and ZeRO stage: where they differ from line to line the prior misleads.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.domain import Configuration, Phase
from autotune.errors import AutotuneError, UsageError
from autotune.proposals.times import PhaseTimes, probed
from autotune.tables.files import read
from benchmarks import every_knob_table
from benchmarks.search.world import World

SHOWN = (Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value, Phase.SYNC.value)
LEAST_S = 0.005
"""A phase that takes less says nothing."""
FEWEST = 3


@dataclass(frozen=True)
class One:
    """A configuration of a table; seconds of a cycle by phase."""

    configuration: Configuration
    measured: Mapping[str, float]
    expected: Mapping[str, float]

    @property
    def whole(self) -> tuple[float, float]:
        """Measured and expected seconds of the phases that were measured."""
        return sum(self.measured.values()), sum(self.expected[phase] for phase in self.measured)

    @property
    def group(self) -> tuple[str, int]:
        """Engine and ZeRO stage."""
        c = self.configuration
        return str(c.get("rollout_engine", "transformers")), int(c.get("zero_stage") or 0)


def of_table(path: Path) -> list[One]:
    """The rows of a sweep's table that hold. Raises ``UsageError``: it cannot be read, or too few do."""
    world = World(read(path))
    trials = [row.trial for row in world.table.rows if row.trial.feasible and row.trial.speed_cycles()]
    if len(trials) < FEWEST:
        raise UsageError(f"{path}: {len(trials)} of its rows were measured; expected at least {FEWEST}")
    model = PhaseTimes(probed(world.table.header.probe)).fitted(world.task, ())
    said = model.forecast([t.configuration for t in trials]).phases
    measured = [
        {phase: statistics.fmean(c.phases.get(phase, 0.0) for c in t.speed_cycles()) for phase in said} for t in trials
    ]
    return _joined([t.configuration for t in trials], measured, said)


def of_every_knob() -> list[One]:
    """Of two ranks, but for trials in an emulated precision."""
    trials, seconds = every_knob_table.trials(), every_knob_table.seconds()
    kept = [i for i, t in enumerate(trials) if t.configuration.get("precision") != "fp8"]
    configurations = [trials[i].configuration for i in kept]
    said = PhaseTimes().fitted(every_knob_table.TASK, ()).forecast(configurations).phases
    return _joined(configurations, [seconds[i] for i in kept], said)


def _joined(
    configurations: Sequence[Configuration],
    measured: Sequence[Mapping[str, float]],
    said: Mapping[str, np.ndarray],
) -> list[One]:
    expected = [{phase: float(column[i]) for phase, column in said.items()} for i in range(len(configurations))]
    return [One(*three) for three in zip(configurations, measured, expected, strict=True)]


def summary(found: Sequence[One]) -> tuple[float, float, float, float]:
    """Mean and standard deviation of log measured / expected, the deviation of log measured, correlation of orders."""
    measured, expected = np.log(np.array([one.whole for one in found])).T
    away = measured - expected
    return float(away.mean()), float(away.std()), float(measured.std()), correlation(measured, expected)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of their orders (Spearman)."""
    return float(np.corrcoef(np.argsort(np.argsort(one)), np.argsort(np.argsort(other)))[0, 1])


def by_group(found: Sequence[One]) -> dict[tuple[str, int], dict[str, float]]:
    """Engine and ZeRO stage -> phase -> mean log measured / expected."""
    groups: dict[tuple[str, int], dict[str, list[float]]] = {}
    for one in found:
        of = groups.setdefault(one.group, {})
        for phase in SHOWN:
            seconds, expected = one.measured.get(phase, 0.0), one.expected[phase]
            if seconds > LEAST_S and expected > 0:
                of.setdefault(phase, []).append(math.log(seconds / expected))
    means = {key: {phase: statistics.fmean(logs) for phase, logs in of.items()} for key, of in groups.items()}
    return dict(sorted(means.items()))


def lines(name: str, found: Sequence[One]) -> list[str]:
    """What is printed of one table."""
    level, scatter, own, order = summary(found)
    said = [
        f"{name}: {len(found)} configurations, log of measured / expected {level:+.2f} ± {scatter:.3f} "
        f"(cycles themselves ± {own:.3f}), orders correlate {order:.2f}"
    ]
    for (engine, stage), phases in by_group(found).items():
        each = ", ".join(f"{phase} {mean:+.2f}" for phase, mean in phases.items())
        said.append(f"  {engine}, ZeRO {stage}: {each}")
    return said


def main(arguments: Sequence[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.time_prior", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--table", type=Path, nargs="+", default=[], metavar="FILE", help="from `autotune sweep`")
    parser.add_argument("--every-knob", action="store_true", help="the recorded table of two ranks")
    asked = parser.parse_args(arguments)
    if not asked.table and not asked.every_knob:
        parser.error("name a table with --table, or --every-knob")
    try:
        for path in asked.table:
            print("\n".join(lines(path.name.partition(".")[0], of_table(path))))
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if asked.every_knob:
        print("\n".join(lines("every-knob", of_every_knob())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
