"""Is a gain ever a faster node's? Synthetic studies on two nodes of which one is slower.

``python -m benchmarks.nodes [--studies 200] [--slower 0.1 0] [--gains 0 0.2] [--seed 0] [--without]``

Each study is a baseline, its copies in ``PLACES`` places of each node, ``SEARCHED`` search trials in places drawn by
chance, and the rounds of confirmation that ``study.confirmation`` asks for; ``recommend`` gives the answer. Trials are
made up: logarithms of a cycle's seconds are configuration, node, drift of the moment, process and cycle, the last three
normal with the spreads of ``statistics.noise`` and ``components``. All configurations are as fast as the baseline, but
for one that is faster by ``--gains``. With the rule, trials name their nodes, figures are put on one level
(``statistics.nodes``) and both halves of a round run on one node (``study.nodes``); without it nobody knows of nodes,
and a half runs in whatever place is free.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    Outcome,
    Study,
    StudySpec,
    Trial,
    TrialDraft,
    TrialKind,
    TrialState,
)  # fmt: skip
from autotune.recommendation.recommend import recommend
from autotune.statistics.components import DRIFT_SPREAD
from autotune.statistics.nodes import levelled
from autotune.statistics.noise import CYCLE_SPREAD, PROCESS_SPREAD
from autotune.study import confirmation, neighbours
from autotune.study.nodes import Spot, confirming
from benchmarks.decisions.studies import h100

PLACES, SEARCHED, CYCLES = 4, 16, 3
TOKENS = 10_000
NODES = ("a", "b")


@dataclass(frozen=True)
class Case:
    """What is true, and who knows of nodes."""

    slower: float
    """Share by which a cycle takes longer on node ``b``."""
    gain: float
    """Of one configuration over the baseline and all others."""
    rule: bool = True

    @property
    def words(self) -> str:
        """For the table."""
        nodes = f"two, one {self.slower:.0%} slower" if self.slower else "two alike"
        truth = f"one is {self.gain:.0%} faster" if self.gain else "none is faster"
        return f"{nodes} | {'yes' if self.rule else 'no'} | {truth}"


@dataclass(frozen=True)
class Answer:
    """What a study says."""

    false: bool
    """It calls something faster that is not."""
    found: bool
    """It recommends the faster one."""
    rounds: int


class MadeUp:
    """One study."""

    def __init__(self, spec: StudySpec, case: Case, seed: int) -> None:
        self._study, self._spec, self._case, self._chance = Study(1, spec, 0.0), spec, case, random.Random(seed)  # noqa: S311
        self.trials: list[Trial] = []
        self._drift: dict[object, float] = {}
        self.best = spec.baseline.with_(logprob_token_chunk=256)

    def run(self) -> Answer:
        """From the baseline to the answer."""
        spec, chance = self._spec, self._chance
        self._add(TrialKind.BASELINE, spec.baseline, NODES[0])
        for node in NODES * PLACES:
            self._add(TrialKind.VERIFY, spec.baseline, node, source=neighbours.source(len(NODES) * PLACES))
        tried = [self.best, *(spec.baseline.with_(logprob_token_chunk=256 * n) for n in range(2, SEARCHED + 1))]
        chance.shuffle(tried)
        for configuration in tried:
            self._add(TrialKind.SEARCH, configuration, chance.choice(NODES))
        while (plan := confirmation.next_trial(self._study, self._known(), at_most=1)) is not None:
            self._add(TrialKind.CONFIRM, plan.draft.configuration, self._place(plan.draft), pair=plan.draft.pair)
        return self._answer()

    def _place(self, draft: TrialDraft) -> str:
        """The node whose place is free first, and where the trial may run."""
        order = self._chance.sample(NODES, len(NODES))
        if not self._case.rule:
            return order[0]
        return next(n for n in order if confirming(self.trials, draft.pair, Spot(node=n, nodes=NODES)))

    def _known(self) -> tuple[Trial, ...]:
        return levelled(self.trials)

    def _answer(self) -> Answer:
        trials = self._known()
        answer = recommend(self._spec, trials, "")
        row = answer.rows[0] if answer is not None else None
        proven = row is not None and row.gain is not None and row.gain.low > 0
        true = row is not None and self._case.gain > 0 and row.configuration == self.best
        rounds = len({t.pair for t in trials if t.pair is not None})
        return Answer(proven and not true, proven and true, rounds)

    def _add(
        self, kind: TrialKind, configuration: Configuration, node: str, pair: int | None = None, source: str = ""
    ) -> None:
        chance, number = self._chance, len(self.trials)
        moment = number if pair is None else ("round", pair)
        drift = self._drift.setdefault(moment, chance.gauss(0.0, DRIFT_SPREAD))
        faster = math.log1p(self._case.gain) if configuration == self.best else 0.0
        slower = math.log1p(self._case.slower) if node == NODES[1] else 0.0
        level = slower - faster + drift + chance.gauss(0.0, PROCESS_SPREAD)
        cycles = tuple(_cycle(n, 10.0 * math.exp(level + chance.gauss(0.0, CYCLE_SPREAD))) for n in range(CYCLES))
        self.trials.append(
            Trial(
                1,
                number,
                kind,
                configuration,
                self._spec.protocol,
                128,
                TrialState.COMPLETE,
                1,
                pair,
                source,
                Outcome(),
                cycles,
                worst_case_passed=True,
                seconds=60.0,
                node=node if self._case.rule else "",
            )
        )


def _cycle(index: int, seconds: float) -> CycleRecord:
    return CycleRecord(
        index=index, cycle_kind=CycleKind.RECORDED, seconds=seconds, phases={"update": seconds},
        completion_tokens=TOKENS, prompt_tokens=TOKENS, rows=128, updates=1, computed_tokens=2 * TOKENS, lengths=(),
        peaks={}, cpu_seconds=seconds, drift=0.0, outside_cpu=0.0, accepted=True, noisy=False, groups=16,
        reward_mean=0.5, started=0.0,
    )  # fmt: skip


def answers(case: Case, studies: int, seed: int = 0) -> list[Answer]:
    """Of so many studies."""
    spec = h100().spec
    return [MadeUp(spec, case, seed + n).run() for n in range(studies)]


def row(case: Case, found: Sequence[Answer]) -> str:
    """Of the table."""
    false, right = (sum(getattr(one, name) for one in found) for name in ("false", "found"))
    rounds = sum(one.rounds for one in found) / len(found)
    said = f"{right}" if case.gain else "-"
    return f"| {case.words} | {len(found)} | {false} | {said} | {rounds:.1f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--studies", type=int, default=200, metavar="N", help="of each case (200)")
    made.add_argument(
        "--slower", type=float, nargs="+", default=[0.1, 0.0], metavar="SHARE", help="of a cycle on node b (0.1 0)"
    )
    made.add_argument(
        "--gains", type=float, nargs="+", default=[0.0, 0.2], metavar="SHARE", help="of one configuration (0 0.2)"
    )
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of the first study; each has its own (0)")
    made.add_argument("--without", action="store_true", help="without the rule")
    given = made.parse_args(arguments)
    print("| nodes | rule | truth | studies | false gains | found | rounds |\n|---|---|---|---|---|---|---|")
    for gain, slower in itertools.product(given.gains, given.slower):
        case = Case(slower, gain, not given.without)
        print(row(case, answers(case, given.studies, given.seed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
