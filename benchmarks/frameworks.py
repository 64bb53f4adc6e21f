"""Which framework with which configuration gives the most tokens/hour? Two studies of one workload, in turns.

``python -m benchmarks.frameworks HOME STUDY STUDY [ROUNDS]`` takes two finished studies of the same model, prompts,
rewards, lengths and rows per update, each of another framework. In each round it runs, one after the other in fresh
processes and in turned-round order in every second one, the baseline of each and the fastest each found that learns as
its baseline does. All replay the lengths the first study recorded, so nobody wins by shorter completions.

It prints a table of Markdown: tokens/hour, seconds of a cycle by phase, and the ratio to the first line with its
two-sided 95 % interval (``benchmarks.defaults``); then what of the two workloads is not the same, which the ratio holds
too. Two workloads that differ by more than the words of their frameworks are refused.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.domain import Configuration, Study, Trial
from autotune.errors import AutotuneError, UsageError
from autotune.ports import Store
from autotune.recommendation.comparison import differences
from autotune.recommendation.reading import StudyReading, read_study
from autotune.settings import read_settings
from autotune.statistics import evidence
from autotune.store import open_store
from benchmarks.defaults import once, ratio
from search_spaces.frameworks import TITLES
from search_spaces.knobs.model import show

OWN = ("framework:", "software", "recorded lengths:", "workload.passthrough")
"""Differences that two frameworks always have, or that are put right here; the objective's are told."""
PASSTHROUGH = "workload.passthrough"
PHASES = ("generate", "reward", "logprob", "update", "sync", "idle")
FOLLOWING = ("gradient_accumulation_steps", "steps_per_generation")


@dataclass(frozen=True)
class Contender:
    """What is run."""

    study: Study
    """With the lengths that all replay."""
    configuration: Configuration

    @property
    def words(self) -> str:
        """How it differs from its framework's baseline."""
        changed = self.configuration.difference(self.study.spec.baseline)
        own = {n: here for n, (here, _) in changed.items() if n not in FOLLOWING and here is not None}
        return ", ".join(f"{name} {show(value)}" for name, value in own.items()) or "its baseline"


def contenders(a: StudyReading, b: StudyReading) -> list[Contender]:
    """The baselines and the fastest of the same learning; the first study's first.

    Raises:
        UsageError: the studies are of one framework, have no lengths, or not the same workload on the same machine.
    """
    names = [record.study.spec.framework for record in (a, b)]
    if names[0] == names[1]:
        raise UsageError(f"both studies are of {TITLES.get(names[0], names[0])}; `autotune compare` compares those")
    other = [line for line in differences(a, b) if not line.startswith(OWN)]
    if other:
        raise UsageError(f"the studies are not of one workload on one machine: {'; '.join(other)}")
    if not a.study.lengths:
        raise UsageError(f"study {a.study.spec.name!r} has recorded no lengths: its baseline was not measured")
    found: list[Contender] = []
    for record in (a, b):
        study = replace(record.study, lengths=a.study.lengths)
        leaders = evidence.leaders(record.trials, study.spec.baseline, study.spec.framework)
        same = [each.configuration for each in leaders if each.row is evidence.Row.SAME_LEARNING]
        found += [Contender(study, each) for each in dict.fromkeys((study.spec.baseline, *same))]
    return found


def table(ran: Mapping[int, Sequence[Trial]], asked: Sequence[Contender]) -> list[str]:
    """Markdown, fastest first; ``ran``: place in ``asked`` -> its trials, one a round."""
    head = ["framework", "configuration", "tokens/hour", "over the first framework's baseline", *PHASES]
    lines = []
    for place in sorted(ran, key=lambda place: -_rate(ran[place])):
        spent = _seconds(ran[place])
        value, low, high = ratio(ran[place], ran[0])
        spread = f" ({low:.2f} to {high:.2f})" if len(ran[place]) > 1 else ""
        over = f"{value:.2f}{spread}" if place else "1"
        name = asked[place].study.spec.framework
        cells = [TITLES.get(name, name), asked[place].words, f"{_rate(ran[place]):,.0f}", over]
        lines.append(cells + [f"{spent.get(phase, 0.0):.2f} s" for phase in PHASES])
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines)]


def _rate(runs: Sequence[Trial]) -> float:
    return statistics.geometric_mean([trial.tokens_per_hour or 1.0 for trial in runs])


def _seconds(runs: Sequence[Trial]) -> dict[str, float]:
    cycles = [cycle for trial in runs for cycle in trial.speed_cycles()]
    names = {name for cycle in cycles for name in cycle.phases}
    return {name: statistics.fmean(cycle.phases.get(name, 0.0) for cycle in cycles) for name in names}


def record_of(store: Store, name: str) -> StudyReading:
    """Raises ``AutotuneError``: there is no such study."""
    study = store.study(name)
    return read_study(store, study)


def main(home: Path, names: Sequence[str], rounds: int) -> int:
    """Run and print; returns the exit status, 2 for bad input."""
    try:
        settings = read_settings(home=home)
        store = open_store(settings.database)
        a, b = (record_of(store, name) for name in names)
        store.close()
        asked = contenders(a, b)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    ran: dict[int, list[Trial]] = {place: [] for place in range(len(asked))}
    for number in range(rounds):
        for place in list(ran) if number % 2 == 0 else list(reversed(ran)):
            each = asked[place]
            ran[place].append(once(each.study, each.configuration, settings))
            text = f"{each.study.spec.framework}, {each.words}: {ran[place][-1].tokens_per_hour:,.0f} tokens/hour"
            print(f"round {number + 1}: {text}", flush=True)
    print("\n" + "\n".join(table(ran, asked)))
    print(f"\n{rounds} rounds in turns, in fresh processes, at the lengths {a.study.spec.name!r} recorded.")
    for line in differences(a, b):
        if line.startswith(PASSTHROUGH):
            print(f"Not the same: {line}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:4], int(sys.argv[4]) if len(sys.argv) == 5 else 3))
