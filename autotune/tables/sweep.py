"""Chooses the next step of a sweep: the baseline, every row of its table once, then the best rows again. Pure.

A sweep is a study whose proposer visits the rows in a fixed order. Unlike a search, every row has all its cycles, since
a table of bounds would be useless, and no leader is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import Budget, Configuration, FailureReason, Study, Trial, TrialDraft, TrialKind
from autotune.ports import Proposer
from autotune.study import protocols, schedule
from autotune.study.budget import Spent, limit_reached, predict, remaining_s
from autotune.study.schedule import NextTrial, Steps, StudyEnd
from autotune.tables import repeats

ALL_THERE = "every row of the table is there"
BROKEN = 2
"""Runs of one repeat, broken by the machine and each tried twice, after which the repeat is given up."""


@dataclass(frozen=True)
class Again:
    """Number of repeats of the best rows in fresh processes."""

    top: int = 20
    """Number of fastest rows to repeat; fewer if fewer are feasible."""
    times: int = 3


def steps(again: Again) -> Steps:
    """Returns the ``schedule.next_step`` of a sweep."""

    def next_step(
        study: Study, trials: Sequence[Trial], budget: Budget, spent: Spent, proposer: Proposer
    ) -> NextTrial | StudyEnd:
        return _next(study, trials, budget, spent, proposer, again)

    return next_step


def fastest(trials: Sequence[Trial], top: int) -> tuple[Configuration, ...]:
    """Returns the ``top`` feasible rows by their first recorded speed, fastest first."""
    rows = [t for t in trials if is_row(t) and t.feasible and not t.emulated and t.tokens_per_hour]
    ranked = sorted(rows, key=lambda t: (-(t.tokens_per_hour or 0.0), t.number))
    return tuple(dict.fromkeys(t.configuration for t in ranked))[:top]


def is_row(trial: Trial) -> bool:
    """Tells whether a trial is a row's first measurement, not a repeat."""
    return trial.kind.is_searched


def owed(trials: Sequence[Trial], again: Again) -> tuple[Configuration, ...]:
    """Lists the repeats still to be run, in order.

    They go in rounds over all the best rows, every second round backwards. So repeats of one row are a whole round
    apart, and a drift of the machine affects all rows alike. A failed repeat is not tried again; one that the machine
    broke is tried once more.
    """
    best = fastest(trials, again.top)
    ended = [t for t in trials if t.source == repeats.SOURCE and t.state.is_finished and t.outcome]
    broken = Counter(t.configuration for t in ended if t.outcome and t.outcome.reason is FailureReason.INFRA)
    said = Counter(t.configuration for t in ended if not t.inconclusive)
    done = {c: said[c] + broken[c] // BROKEN for c in best}
    rounds = ((turn, best if turn % 2 == 0 else best[::-1]) for turn in range(again.times))
    return tuple(c for turn, order in rounds for c in order if done[c] <= turn)


def _next(
    study: Study, trials: Sequence[Trial], budget: Budget, spent: Spent, proposer: Proposer, again: Again
) -> NextTrial | StudyEnd:
    left = remaining_s(budget, spent, study.spec.resources.total_gpus)
    reached = limit_reached(replace(budget, max_trials=None), spent, trials)
    if reached is not None:
        return StudyEnd(reached)
    if not trials:
        return NextTrial(protocols.baseline_draft(study))
    lost_cause = schedule.hopeless(trials)
    if lost_cause is not None:
        return StudyEnd(lost_cause)
    draft = _row(study, trials, proposer) or _repeat(study, trials, again)
    if draft is None:
        return StudyEnd(ALL_THERE)
    cost = predict(trials, draft.configuration)
    if left is not None and cost is not None and left - schedule.ENDING_S < cost.total(draft.protocol):
        return StudyEnd("the time budget is used up")
    return NextTrial(draft)


def _row(study: Study, trials: Sequence[Trial], proposer: Proposer) -> TrialDraft | None:
    proposed = proposer.propose(trials, len(trials))
    if proposed is None:
        return None
    configuration, source = proposed
    protocol = protocols.without_repeats(protocols.protocol_of(study, trials, configuration), trials)
    return study.draft(TrialKind.SEARCH, configuration, protocol, source)


def _repeat(study: Study, trials: Sequence[Trial], again: Again) -> TrialDraft | None:
    due = owed(trials, again)
    return repeats.draft(study, trials, due[0]) if due else None
