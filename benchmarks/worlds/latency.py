"""CPU seconds of a proposal in a new process, after trials of drawn candidates as the physics of a world has them."""

from __future__ import annotations

import random
import statistics
import time

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    FailureReason,
    Outcome,
    Protocol,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.specification.request import DEFAULT_SAMPLER
from benchmarks.decisions.studies import Place
from benchmarks.worlds import product

PROPOSALS = 10
"""Asked for after the first one, each with a trial more."""
CYCLES = 3
FAILS = 12
"""One trial in so many runs out of memory, as in a study, whose memory filter leaves few that do."""


def figures(place: Place, count: int, seed: int = 0) -> dict[str, float]:
    """CPU seconds of making the proposer, of its first proposal after ``count`` trials, and of those that follow."""
    chance = random.Random(f"latency/{seed}")  # noqa: S311 - repeatable
    drawn = iter(chance.sample(place.candidates, len(place.candidates)))
    trials = [_trial(place, 0, place.spec.baseline, chance)]
    while len(trials) < count + PROPOSALS:
        one = _trial(place, len(trials), next(drawn), chance)
        if (one.state is TrialState.COMPLETE) is bool(one.number % FAILS):
            trials.append(one)
    began = time.process_time()
    proposer = product.proposer(DEFAULT_SAMPLER, place, seed)
    made, taken = time.process_time(), []
    for more in range(1 + PROPOSALS):
        history, before = tuple(trials[: count + more]), time.process_time()
        proposer.propose(history, len(history))
        taken.append(time.process_time() - before)
    later = sorted(taken[1:])
    return {
        "trials": count, "made_s": made - began, "first_s": taken[0], "second_s": taken[1],
        "median_s": statistics.median(later), "longest_s": later[-1],
    }  # fmt: skip


def _trial(place: Place, number: int, configuration: Configuration, chance: random.Random) -> Trial:
    """What a search trial leaves behind: ended well, or out of memory."""
    machine, draw = place.machine, chance.random()
    short = machine.ooms(configuration, draw)
    phases, peaks = machine.phases(configuration), machine.peaks(configuration, draw)
    luck = [chance.gauss(1.0, 0.02) for _ in range(CYCLES)]
    cycles = tuple(
        CycleRecord(
            index, CycleKind.RECORDED, pace * sum(phases.values()), {n: pace * s for n, s in phases.items()},
            sum(place.lengths), place.prompt_tokens, rows=len(place.lengths), updates=1, lengths=place.lengths,
            computed_tokens=place.prompt_tokens + sum(place.lengths), peaks=peaks,
        )
        for index, pace in enumerate(luck)
    )  # fmt: skip
    return Trial(
        study_id=1, number=number, kind=TrialKind.SEARCH if number else TrialKind.BASELINE,
        configuration=configuration, protocol=Protocol(), rows_per_update=place.spec.workload.rows_per_update,
        state=TrialState.FAIL if short else TrialState.COMPLETE, cycles=() if short else cycles,
        outcome=Outcome(FailureReason.OOM, *short, "out of memory") if short else Outcome(),
        worst_case_passed=short is None, started_at=60.0 * number, finished_at=60.0 * number + 59.0, seconds=59.0,
    )  # fmt: skip
