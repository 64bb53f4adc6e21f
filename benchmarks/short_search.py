"""What a short study finds: the present order of proposals beside the one without moves, on invented machines.

``python -m benchmarks.short_search [SEEDS]`` draws that many machines. On each, both orders search the ``cpu`` preset
from the same baseline with the same noise, and what they found is compared with the best there is. Nothing here was
measured: a machine is a table of effects drawn at random, so the figures say how well an order searches, not what a
configuration gains. See docs/decisions/0028-moves-first.md.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    FailureReason,
    Outcome,
    Phase,
    Pool,
    Protocol,
    Resources,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.proposals.candidate_grid import coordinate
from autotune.proposals.openings import openings, without_memory_savers
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers.plain import TpeSampler
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.space import SearchSpace

SPACE = SearchSpace.load("cpu")
ROWS = 8
RESOURCES = Resources(cpu_cores=2, rows_per_update=ROWS, num_generations=8, framework="trl")
AFTER = (6, 9, 12, 20)
"""Search trials a study had."""
NOISE = 0.03
"""Standard deviation of a trial's log tokens/hour."""
TOKENS = 1_000_000
PHASES = {Phase.GENERATE: 2.0, Phase.LOGPROB: 1.0, Phase.UPDATE: 3.0, Phase.SYNC: 0.3}
"""Shape of the Dirichlet distribution a baseline's phases are drawn from."""
UNMOVED = 0.5
"""Share of the knobs that act on nothing, whatever the catalogue says."""
STEP, JUMP, TOGETHER = 0.12, 0.25, 0.05
"""Standard deviations in log seconds: of a step along numbers, of a choice, of two choices beyond their sum."""
TIED = 0.3
"""Share of the pairs of knobs that have an effect beyond their sum."""


class Machine:
    """Log seconds of each phase: the sum of an effect of each knob's value and of some pairs of values."""

    def __init__(self, seed: int, baseline: Configuration, candidates: Sequence[Configuration]) -> None:
        chance = random.Random(f"machine/{seed}")  # noqa: S311 (repeatable on purpose)
        self._baseline = baseline
        drawn = {phase: chance.gammavariate(shape, 1.0) for phase, shape in PHASES.items()}
        self._seconds = {phase: 10 * value / sum(drawn.values()) for phase, value in drawn.items()}
        values = {n: sorted({_value(n, c) for c in candidates}, key=_sortable) for n in SPACE.values}
        self._effects = {n: _drawn(chance, found) for n, found in values.items()}
        self._pairs = {
            pair: chance.gauss(0.0, TOGETHER)
            for pair in itertools.combinations(sorted(SPACE.values), 2)
            if chance.random() < TIED and self._effects[pair[0]] and self._effects[pair[1]]
        }
        self._needs = {n: chance.random() for n in SPACE.values}
        needs = sorted(self.need(c) for c in candidates)
        short = chance.choice((0.0, 0.1, 0.25))
        self._best: dict[int, float] = {}
        self._limit = max(self.need(baseline), needs[int((len(needs) - 1) * (1 - short))])

    def phases(self, configuration: Configuration) -> dict[str, float]:
        """Seconds of a cycle by phase."""
        found = {}
        for phase, seconds in self._seconds.items():
            acting = [n for n in self._effects if not KNOBS[n].phases or phase.value in KNOBS[n].phases]
            log = sum(self._effect(n, configuration) for n in acting)
            changed = {n for n in acting if _value(n, configuration) != _value(n, self._baseline)}
            log += sum(value for (a, b), value in self._pairs.items() if a in changed and b in changed)
            found[phase.value] = seconds * math.exp(log)
        return found

    def _effect(self, name: str, configuration: Configuration) -> float:
        effects = self._effects[name]
        here, there = _value(name, configuration), _value(name, self._baseline)
        return effects.get(here, 0.0) - effects.get(there, 0.0)

    @functools.cache  # noqa: B019 (a machine lives as long as its search)
    def speed(self, configuration: Configuration) -> float:
        """Tokens per second."""
        return TOKENS / sum(self.phases(configuration).values())

    def need(self, configuration: Configuration) -> float:
        """Memory of an update; along each knob it grows as the catalogue says."""
        total = 0.0
        for name, weight in self._needs.items():
            knob, value = KNOBS[name], configuration[name]
            acting = [e for e in knob.memory if e.pool == "host" and (not e.phases or "update" in e.phases)]
            if acting and acting[0].direction:
                rank = knob.order.index(value) if value in knob.order else math.log2(1 + float(value))
                total += weight * acting[0].direction * rank
        return total

    def fits(self, configuration: Configuration) -> bool:
        return self.need(configuration) <= self._limit

    def best(self, among: tuple[Configuration, ...]) -> float:
        """Speed of the best of ``among`` that fits."""
        if len(among) not in self._best:
            self._best[len(among)] = max(self.speed(c) for c in among if self.fits(c))
        return self._best[len(among)]

    def run(self, configuration: Configuration, number: int, noise: float, source: str) -> Trial:
        """The trial ``configuration`` would make."""
        trial = Trial(
            study_id=1,
            number=number,
            kind=TrialKind.SEARCH if number else TrialKind.BASELINE,
            configuration=configuration,
            protocol=Protocol(),
            rows_per_update=ROWS,
            source=source,
        )
        if not self.fits(configuration):
            outcome = Outcome(FailureReason.OOM, Phase.UPDATE.value, Pool.HOST)
            return trial.with_(state=TrialState.FAIL, outcome=outcome)
        phases = {name: seconds * math.exp(-noise) for name, seconds in self.phases(configuration).items()}
        cycle = CycleRecord(
            index=0,
            cycle_kind=CycleKind.RECORDED,
            seconds=sum(phases.values()),
            phases=phases,
            completion_tokens=TOKENS,
            prompt_tokens=0,
            rows=ROWS,
            updates=1,
            computed_tokens=TOKENS,
        )
        return trial.with_(state=TrialState.COMPLETE, outcome=Outcome(), cycles=(cycle,), worst_case_passed=True)


class WithoutMoves(TpeSampler):
    """The order of proposals before there were moves."""

    learns = False


ORDERS = {"without moves": WithoutMoves, "moves": TpeSampler}


@functools.cache
def candidates(micro: int) -> tuple[Configuration, tuple[Configuration, ...], tuple[Configuration, ...]]:
    """The baseline of a micro-batch size, complete, and the candidates of both tracks."""
    asked = Configuration({"micro_batch_size": micro, "gradient_accumulation_steps": ROWS // micro})
    baseline = SPACE.complete(asked.with_(num_generations=8, precision="fp32"), RESOURCES)
    headline = SPACE.candidates(baseline, RESOURCES, same_learning=True)
    return baseline, headline, SPACE.candidates(baseline, RESOURCES, same_learning=False)


def search(machine: Machine, order: str, seed: int, micro: int, trials: int) -> list[Trial]:
    """The baseline and ``trials`` search trials; a configuration has the same noise in every order."""
    baseline, headline, permitted = candidates(micro)
    firsts, ample = openings(headline, baseline), without_memory_savers(headline, baseline)
    if order != "moves":
        ample = next((c for c, source in firsts if source == "roomy"), None)
    proposer = TwoTrackProposer(
        headline=headline, permitted=permitted, searched=SPACE.values, baseline=baseline, complete_baseline=baseline,
        sampler=ORDERS[order](), seed=seed, one_memory=True, firsts=firsts, otherwise=ample,
    )  # fmt: skip
    made: list[Trial] = []
    proposal: tuple[Configuration, str] | None = (baseline, "baseline")
    while proposal is not None and len(made) <= trials:
        chance = random.Random(f"noise/{seed}/{proposal[0].key}")  # noqa: S311 (repeatable on purpose)
        made.append(machine.run(proposal[0], len(made), chance.gauss(0.0, NOISE), proposal[1]))
        proposal = proposer.propose(made, len(made))
    return made


def found(machine: Machine, trials: Sequence[Trial], among: tuple[Configuration, ...]) -> float:
    """True speed of what looked fastest, of the best there is."""
    own = frozenset(among)
    held = [t for t in trials if t.feasible and t.configuration in own]
    fastest = max(held, key=lambda t: t.tokens_per_hour or 0.0)
    return machine.speed(fastest.configuration) / machine.best(among)


def compared(seeds: int) -> dict[tuple[str, str, int], list[float]]:
    """Track, order and search trials -> what was found on each machine, in the order of the seeds."""
    values: dict[tuple[str, str, int], list[float]] = {}
    for seed in range(seeds):
        micro = (8, 4, 2, 1)[seed % 4]
        baseline, headline, permitted = candidates(micro)
        machine = Machine(seed, baseline, permitted)
        for order in ORDERS:
            made = search(machine, order, seed, micro, max(AFTER))
            for name, among in (("headline", headline), ("permitted", permitted)):
                for after in AFTER:
                    value = found(machine, made[: after + 1], among)
                    values.setdefault((name, order, after), []).append(value)
    return values


def table(values: Mapping[tuple[str, str, int], Sequence[float]]) -> list[str]:
    """The median and 10th percentile, and on how many machines moves found more or less."""
    lines = [f"| track, order | {' | '.join(f'{n} trials' for n in AFTER)} |", "|---" * (1 + len(AFTER)) + "|"]
    for track in ("headline", "permitted"):
        for order in ORDERS:
            cells = [f"{statistics.median(v):.3f} ({_tenth(v):.3f})" for v in (values[track, order, n] for n in AFTER)]
            lines.append(f"| {track}, {order} | {' | '.join(cells)} |")
        pairs = [list(zip(*(values[track, order, n] for order in ORDERS), strict=True)) for n in AFTER]
        cells = [f"{sum(b > a for a, b in p)} / {sum(b < a for a, b in p)}" for p in pairs]
        lines.append(f"| {track}: moves more / less | {' | '.join(cells)} |")
    return lines


def _tenth(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def _drawn(chance: random.Random, values: Sequence[KnobValue]) -> Mapping[KnobValue, float]:
    """Value -> log seconds, in the phases the knob acts on; empty where it acts on none."""
    if chance.random() < UNMOVED:
        return {}
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        steps = itertools.accumulate(chance.gauss(0.0, STEP) for _ in values)
        return dict(zip(values, steps, strict=True))
    return {value: chance.gauss(0.0, JUMP) for value in values}


def _value(name: str, configuration: Configuration) -> KnobValue:
    """Steps per generation by the rows they generate, which a micro-batch leaves alone."""
    value = coordinate(name, configuration)
    return configuration[name] if value is None else value


def _sortable(value: KnobValue) -> tuple[str, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return (type(value).__name__, number, str(value))


if __name__ == "__main__":
    print("\n".join(table(compared(int(sys.argv[1]) if len(sys.argv) > 1 else 60))))
