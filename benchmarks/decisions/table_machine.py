"""A recorded table of a CPU as a machine: what a row costs is what it cost, and there is nothing to try but its rows.

Extrapolated: cycles at maximum and at twice the lengths take as long as the row's warm-up, which has the maximum
lengths; every row has the scatter of cycles and processes that the table shows on average.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autotune.domain import Configuration, CycleKind, StudySpec, Trial, Workload
from autotune.errors import UsageError
from autotune.proposals.forecasts import PriorData
from autotune.statistics.noise import pooled, sample_of
from autotune.tables.files import read
from benchmarks.decisions.recorded import Start
from benchmarks.decisions.studies import Place
from benchmarks.search.world import World, holds, is_oom
from trainer.child.contract import RewardSpec

TABLE = Path(__file__).resolve().parents[1] / "tables" / "search-cpu-16m-engines.jsonl.gz"
"""300 configurations of a 16M model on two cores, vLLM and transformers; its best is 1.5 times its baseline."""


@dataclass(frozen=True)
class TableMachine:
    """``Machine`` of one table."""

    world: World

    @cached_property
    def _places(self) -> Mapping[Configuration, int]:
        return {configuration: place for place, configuration in enumerate(self.world.configurations)}

    def _trial(self, configuration: Configuration) -> Trial:
        return self.world.table.rows[self._places[configuration]].trial

    @cached_property
    def cycle_spread(self) -> float:
        """Pooled within processes."""
        return math.sqrt(pooled(sample_of(row.trial).logs for row in self.world.table.rows).variance)

    @cached_property
    def process_spread(self) -> float:
        """Pooled over rows that ran more than once; what cycles leave open of a mean is taken off."""
        runs = [[t.tokens_per_hour for t in (r.trial, *r.repeats)] for r in self.world.table.rows if r.repeats]
        between = pooled([math.log(v) for v in values if v] for values in runs).variance
        return math.sqrt(max(0.0, between - self.cycle_spread**2 / 3))

    def phases(self, configuration: Configuration) -> Mapping[str, float]:
        cycles = self._trial(configuration).speed_cycles()
        if not cycles:  # it ran out of memory: only the time until then is asked for
            return {"update": 1.0}
        return {name: statistics.fmean(c.phases.get(name, 0.0) for c in cycles) for name in cycles[0].phases}

    def factor(self, configuration: Configuration, kind: CycleKind, place: int, *, kept: bool) -> float:  # noqa: ARG002
        if kind in (CycleKind.RECORDED, CycleKind.NATURAL):
            return 1.0
        trial = self._trial(configuration)
        warm = [c.seconds for c in trial.cycles if c.cycle_kind is CycleKind.WARMUP]
        return statistics.fmean(warm) / sum(self.phases(configuration).values()) if warm else 1.0

    def start(self, configuration: Configuration, engines: int, *, kept: bool) -> Start:  # noqa: ARG002
        trial = self._trial(configuration)
        rest = (
            (trial.seconds or 0.0) - sum(trial.startup.values()) - sum(c.seconds for c in trial.cycles if c.rank == 0)
        )
        if is_oom(trial):
            return Start(trial.startup, 0.0)
        return Start(trial.startup, max(0.0, rest))

    def peaks(self, configuration: Configuration) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for cycle in self._trial(configuration).cycles:
            for name, peaks in cycle.peaks.items():
                found[name] = max(found.get(name, 0), peaks.host or 0)
        return found

    def ooms(self, configuration: Configuration) -> str | None:
        trial = self._trial(configuration)
        return (trial.outcome.phase if trial.outcome else None) or "update" if is_oom(trial) else None

    def end_s(self, configuration: Configuration, *, kept: bool, discarded: bool) -> float:  # noqa: ARG002
        return 0.0

    def keeps(self, configuration: Configuration) -> bool:  # noqa: ARG002
        return False


def cpu(path: Path = TABLE) -> Place:
    """The study of a table, kept to its rows with the baseline's learning that held or ran out
    of memory.

    Raises:
        UsageError: the table cannot be read, or its baseline did not hold.
    """
    whole = World(read(path))
    header = whole.table.header
    same = [r for r in whole.table.rows if r.same_learning]
    rows = tuple(r for r in same if holds(r) or (is_oom(r.trial) and not r.trial.speed_cycles()))
    world = World(type(whole.table)(header, rows, name=whole.table.name))
    if not holds(rows[world.baseline]):
        raise UsageError(f"{path}: the baseline did not hold")
    work = Workload(
        model=header.model, prompts="recorded", prompts_sha256="0" * 64,
        rewards=(RewardSpec(kind="reasoning_gym", name="recorded"),), rows_per_update=header.rows_per_update,
        max_prompt_length=header.max_prompt_length, max_completion_length=header.max_completion_length,
        passthrough=header.passthrough,
    )  # fmt: skip
    protocol = type(header.protocol)(recorded=3, warmup=header.protocol.warmup)
    spec = StudySpec(
        "recorded", work, header.framework, header.space, header.baseline, header.resources, sampler="grey",
        protocol=protocol, memory_limit=header.memory_limit, python="none",
    )  # fmt: skip
    baseline = rows[world.baseline].trial
    prompts = next((c.prompt_tokens for c in baseline.speed_cycles()), 0)
    return Place(
        "cpu", TableMachine(world), spec, header.lengths, prompts, PriorData(header.probe), world.configurations
    )
