"""Decides the next step of a study: run a trial, or end with a reason. Pure.

Order: the baseline (again, if the budget, the machine or the tuner's death ended it), then proposals while the
remaining budget holds a trial and the confirmation of the present leaders, then that confirmation. A leader that has
led for a while is confirmed earlier, as long as all confirmations take a fifth of the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import (
    Budget,
    Configuration,
    FailureReason,
    Outcome,
    Pool,
    Protocol,
    Study,
    Trial,
    TrialDraft,
    TrialKind,
    TrialState,
)
from autotune.domain.outcomes import NOT_RETURNED
from autotune.ports import FrugalProposer, PlacedProposer, Proposer
from autotune.statistics import retries
from autotune.statistics.kept_process import goes_on
from autotune.study import confirmation, neighbours
from autotune.study.budget import GRACE_S, Cost, Spent, limit_reached, predict, predict_search, remaining_s
from autotune.study.neighbours import ALONE, Slot
from autotune.study.protocols import baseline_draft, search_protocol
from autotune.wording.numbers import format_duration
from search_spaces.batch import serving_gpus
from trainer.child.contract import StartupPart

SAME_FAILURES = 4
"""Number of first trials whose equal failures end a study; half as many refusals or early NaNs."""

FIRST_TRIAL_TIMEOUT_S = 3600.0
TIMEOUT_FACTOR = 4.0
"""Multiple of its predicted time after which a trial is stopped."""
SHORTEST_TIMEOUT_S = 120.0
FIRST_SERVER_S = 900.0
"""Seconds for the start of a rollout server before any was measured: the longest allowed."""
SAFELY = 1.25
"""Multiple of its predicted time that a search trial may take of the time not kept for the confirmation."""
ENDING_S = 10.0
"""Seconds reserved for the end of a stopped search trial's process tree, so that the confirmation keeps its time."""

ROOM = 4.0
"""Least budget as a multiple of the baseline's time: the baseline, a faster trial, and their confirmation."""

ATTEMPTS = 2
"""Most attempts at a trial that the machine or the reward broke, or that ran out of host memory while compiling."""

LOST_ATTEMPTS = 3
"""Most attempts at a trial during each of which the tuner died."""


@dataclass(frozen=True)
class NextTrial:
    """The trial to run next."""

    draft: TrialDraft


@dataclass(frozen=True)
class StudyEnd:
    """The end of the study, with the reason."""

    because: str


@dataclass(frozen=True)
class Deadline:
    """Time limit of an attempt, and whether the budget (not the trial's own cost) set it."""

    seconds: float
    by_budget: bool


@dataclass(frozen=True)
class Wait:
    """The step that starts nothing until a running trial has ended."""

    elsewhere: bool = False
    """True if something may start in a slot of another node."""


ALL_TRIED = "every legal combination that could fit has been tried, or is not expected to be faster"


def next_step(
    study: Study, trials: Sequence[Trial], budget: Budget, spent: Spent, proposer: Proposer, slot: Slot = ALONE
) -> NextTrial | StudyEnd | Wait:
    """Returns the next step for a free slot, whether or not trials run in others. Reads nothing but its arguments.

    After the baseline, its copies run in all slots at once, and one on each node (``neighbours``). While others run,
    proposals continue as long as the time allows, with one due confirmation at a time, on the node of its other half.
    The last confirmation waits for the end of the search.
    """
    trials = neighbours.whole_rounds(trials, slot.nodes)
    remaining = remaining_s(budget, spent, study.spec.resources.total_gpus)
    copy = neighbours.due(study, trials, budget.at_once)
    if copy is None:
        copy = neighbours.node_due(study, trials, slot)
        late = copy is not None and _must_wait(trials, copy.kind, budget, slot)
    else:
        late = _running(trials, but=copy.source)
    if copy is not None and not late and not _no_room(study, trials, budget, remaining, copy):
        return NextTrial(copy)
    if remaining is not None and remaining <= 0:
        return StudyEnd(limit_reached(budget, spent, trials) or "the budget is used up")
    if not _running(trials):
        step = _next_alone(study, trials, budget, spent, remaining, proposer)
        return step if _for_here(step, trials, slot) else Wait(elsewhere=True)
    if not any(t.state is TrialState.RUNNING and t.kind is TrialKind.CONFIRM for t in trials):
        # What follows half a round is the other half, whatever has ended since.
        ended = sorted(
            (t for t in trials if t.state.is_finished), key=lambda t: (t.kind is TrialKind.CONFIRM, t.number)
        )
        due = _due_round(study, ended, spent, remaining)
        if due is not None and _for_here(due, trials, slot):
            return Wait(elsewhere=True) if _must_wait(trials, TrialKind.CONFIRM, budget, slot) else due
    if limit_reached(budget, spent, trials):
        return Wait()
    if _must_wait(trials, TrialKind.SEARCH, budget, slot):
        return Wait(elsewhere=True)
    draft = _drafted(study, trials, _proposed(proposer, trials, slot.here or ()))
    if draft is None or _no_room(study, trials, budget, remaining, draft, slot.here):
        return Wait()
    return NextTrial(draft)


def _next_alone(
    study: Study, trials: Sequence[Trial], budget: Budget, spent: Spent, remaining: float | None, proposer: Proposer
) -> NextTrial | StudyEnd:
    """Returns the next trial or the end if no trial runs."""
    if not trials or retries.undecided(trials, study.spec.baseline):
        return NextTrial(baseline_draft(study))
    if (lost_cause := hopeless(trials)) is not None:
        return StudyEnd(lost_cause)
    if (due := _due_round(study, trials, spent, remaining)) is not None:
        return due
    because = limit_reached(budget, spent, trials)
    if because is None:
        step = _search(study, trials, budget, remaining, proposer)
        if isinstance(step, NextTrial):
            return step
        because = step.because
    return _confirmation(study, trials, remaining, because)


def _must_wait(trials: Sequence[Trial], kind: TrialKind, budget: Budget, slot: Slot) -> bool:
    return neighbours.must_wait(trials, kind, budget.at_once, slot.node)


def _for_here(step: NextTrial | StudyEnd, trials: Sequence[Trial], slot: Slot) -> bool:
    """Tells whether a step may run in ``slot``: any except a half of a round that runs on another node."""
    if not isinstance(step, NextTrial) or step.draft.kind is not TrialKind.CONFIRM:
        return True
    return neighbours.confirming(trials, step.draft.pair, slot)


def _proposed(proposer: Proposer, trials: Sequence[Trial], here: Sequence[Trial]) -> tuple[Configuration, str] | None:
    if isinstance(proposer, PlacedProposer):
        return proposer.propose_at(trials, len(trials), here)
    return proposer.propose(trials, len(trials))


def _running(trials: Sequence[Trial], but: str = "") -> bool:
    """Tells whether a trial runs whose source is not ``but``."""
    return any(t.state is TrialState.RUNNING and (not but or t.source != but) for t in trials)


def interrupted(
    study: Study, trials: Sequence[Trial], budget: Budget, spent: Spent, slot: Slot = ALONE
) -> Trial | Wait | None:
    """Returns the interrupted trial for ``slot``, or ``Wait`` if it must wait; ``None`` without one or its budget."""
    waiting = next(
        (t for t in trials if t.state is TrialState.WAITING and not neighbours.waits_for(trials, t, slot)), None
    )
    if waiting is None:
        return None
    remaining = remaining_s(budget, spent, study.spec.resources.total_gpus)
    cost = _cost(study, trials, waiting.kind, waiting.configuration, slot.here)
    late = Wait(elsewhere=True) if _must_wait(trials, waiting.kind, budget, slot) else waiting
    if remaining is None or (cost is None and remaining > 0):
        return late
    if waiting.kind is TrialKind.SEARCH and cost is not None:
        remaining -= kept_s(study, trials, budget, remaining, cost.total(waiting.protocol))
    return late if cost is not None and remaining >= cost.total(waiting.protocol) else None


def deadline(
    study: Study,
    trial: Trial,
    trials: Sequence[Trial],
    budget: Budget,
    spent: Spent,
    here: Sequence[Trial] | None = None,
) -> Deadline:
    """Limits the time of one attempt; a search trial leaves time for a confirmation. ``here``: as in ``Slot``."""
    cost = _cost(study, trials, trial.kind, trial.configuration, here)
    if cost is None:
        own = FIRST_TRIAL_TIMEOUT_S
    elif trial.kind is TrialKind.VERIFY:  # A retry may repeat a TIMEOUT, and its user is waiting.
        own = max(TIMEOUT_FACTOR * cost.total(trial.protocol), FIRST_TRIAL_TIMEOUT_S)
    else:
        own = max(TIMEOUT_FACTOR * _longest_s(trials, trial, cost), SHORTEST_TIMEOUT_S)
        own += FIRST_SERVER_S if _first_server(study, trials, trial.configuration) else 0.0
    remaining = remaining_s(budget, spent, study.spec.resources.total_gpus)
    if remaining is None:
        return Deadline(own, by_budget=False)
    if trial.kind is TrialKind.SEARCH and cost is not None:
        needed = cost.total(trial.protocol)
        room = remaining - kept_s(study, trials, budget, remaining, needed)
        # A trial that was let in has its time: one that is broken off right before its end has cost it for nothing.
        remaining = max(room - ENDING_S, min(room, SAFELY * needed), cost.first_measurement(trial.protocol))
    else:
        # Half of the grace is kept for ending the process tree and writing the recommendation.
        remaining += GRACE_S / 2
    return Deadline(min(own, remaining), by_budget=remaining < own)


def _longest_s(trials: Sequence[Trial], trial: Trial, cost: Cost) -> float:
    """Returns the seconds of a trial if no kept process can run it (``--cold``, several ranks, a lost process)."""
    if trial.kind is TrialKind.SEARCH:
        cost = predict_search([t for t in trials if t.state.is_finished], trial.configuration, kept=False) or cost
    return cost.total(trial.protocol)


def _first_server(study: Study, trials: Sequence[Trial], configuration: Configuration) -> bool:
    """Tells whether a trial needs a rollout server, and no start of a server was measured yet."""
    known = any(StartupPart.SERVER.value in t.startup for t in trials)
    return not known and serving_gpus(configuration, study.spec.resources) > 0


def reserve_s(study: Study, trials: Sequence[Trial], budget: Budget) -> float:
    """Returns the wall seconds reserved for the confirmation; 0 without a time limit."""
    whole = budget.seconds_on(study.spec.resources.total_gpus)
    return 0.0 if whole is None else confirmation.reserve_s(study, trials, whole)


def kept_s(study: Study, trials: Sequence[Trial], budget: Budget, remaining: float, needed: float) -> float:
    """Returns the seconds of ``remaining`` reserved for the confirmation when a search trial of ``needed`` seconds
    starts: ``reserve_s``, but 0 if that would exclude the trial and no confirmation could follow."""
    kept = reserve_s(study, trials, budget)
    return 0.0 if remaining - kept < needed and not _confirmable(study, trials, remaining) else kept


def judged(outcome: Outcome, trial: Trial, bound: Deadline) -> Outcome:
    """Returns the outcome that the study records: CANCELLED if the study's own budget ended the attempt, CRASH if it
    reports success without a measurement."""
    if outcome.reason is FailureReason.TIMEOUT and bound.by_budget:
        message = retries.SHARE_ENDED if trial.kind is TrialKind.SEARCH else retries.BUDGET_ENDED
        advice = _more_budget(trial, bound.seconds) if trial.kind is TrialKind.BASELINE else ""
        if outcome.message.startswith(NOT_RETURNED):
            advice = f"{outcome.message}: see what it waits for, and give it a time limit"
        return replace(outcome, reason=FailureReason.CANCELLED, message=message, suggestion=advice)
    if outcome.ok and not trial.worst_case_passed:
        return replace(outcome, reason=FailureReason.CRASH, message="ended without passing the longest batch")
    if outcome.ok and trial.protocol.recorded and trial.tokens_per_hour is None:
        return replace(outcome, reason=FailureReason.CRASH, message="ended without a measured cycle")
    return outcome


def _more_budget(trial: Trial, got_s: float) -> str:
    """Returns the advice for a budget that was too short for the first trial, by its cycles and seconds."""
    smaller = "fewer rows per update, shorter completions or a smaller model"
    took = [c.seconds for c in trial.cycles if c.rank == 0]
    if not took:
        return f"not one cycle of the baseline ended: give more budget, {smaller}"
    how, each = trial.protocol, statistics.fmean(took)
    cycles = how.warmup + how.natural + how.recorded + how.maximum + how.double
    enough = format_duration(math.ceil(ROOM * max(cycles * each, got_s) / 60.0) * 60.0)
    took_words = f"a cycle of the baseline took {format_duration(each)}, and a trial has {cycles} of them"
    return f"{took_words}: give a budget of {enough} or more, {smaller}"


def again(outcome: Outcome, earlier: int, *, compiled: bool) -> bool:
    """Tells whether a trial needs another attempt before its configuration can be judged, after ``earlier`` repeats for
    the same reason; ``compiled``: a compiler ran in this one. See docs/decisions/0039-compilers-and-the-limit.md."""
    drowned = compiled and outcome.reason is FailureReason.OOM and outcome.pool is Pool.HOST
    other = outcome.reason in (FailureReason.INFRA, FailureReason.REWARD_ERROR)  # a judge may answer the next time
    return (other or drowned) and 1 + earlier < ATTEMPTS


def lost(trial: Trial, deaths: int) -> Outcome | None:
    """Returns the outcome of a trial in which the tuner has died ``deaths`` times; ``None``: it runs again."""
    if deaths < LOST_ATTEMPTS:
        return None
    return Outcome(
        reason=FailureReason.CANCELLED if trial.kind is TrialKind.BASELINE else FailureReason.CRASH,
        message=f"the tuner died {deaths} times while this trial ran",
        suggestion="look for the kernel's out-of-memory killer, and give --memory-limit; `autotune retry` goes on",
    )


def _cost(
    study: Study,
    trials: Sequence[Trial],
    kind: TrialKind,
    configuration: Configuration,
    here: Sequence[Trial] | None = None,
) -> Cost | None:
    """Predicts a trial's cost: a search trial by the process it will run in (``here``: finished trials of its slot),
    any other trial in its own process."""
    if kind is not TrialKind.SEARCH:
        return predict(trials, configuration)
    others = [t for t in trials if t.state.is_finished]
    kept = goes_on(others if here is None else here, configuration, study.spec.framework, study.spec.resources.device)
    return predict_search(others, configuration, kept=kept)


def _no_room(
    study: Study,
    trials: Sequence[Trial],
    budget: Budget,
    remaining: float | None,
    draft: TrialDraft,
    here: Sequence[Trial] | None = None,
) -> str | None:
    """Explains why the search trial and its confirmation do not fit into the time; ``None`` if they do."""
    cost = _cost(study, trials, draft.kind, draft.configuration, here)
    if remaining is None or cost is None:
        return None
    # A trial that was cut has shown what is not enough.
    cut = [t.seconds or 0.0 for t in trials if t.kind is draft.kind and retries.stopped_by_budget(t)]
    needed = max(cost.total(draft.protocol), *cut, 0.0)
    kept = kept_s(study, trials, budget, remaining, needed)
    if remaining - kept >= needed:
        return None
    both = "a search trial and its confirmation take" if kept else "a search trial takes"
    return _unused(remaining, needed + kept, both)


def _unused(remaining: float, needed: float, what: str) -> str:
    """Explains why the remaining time ends a study."""
    return f"the time budget holds no more: {format_duration(remaining)} are left, and {what} {format_duration(needed)}"


def _due_round(study: Study, trials: Sequence[Trial], spent: Spent, remaining: float | None) -> NextTrial | None:
    """Returns the due confirmation: the other half of an open round, or a round that is due during the search."""
    plan, over = confirmation.half_done(study, trials), GRACE_S / 2
    if plan is None and remaining is not None:
        plan, over = confirmation.between(study, trials, spent.wall_s), 0.0
    return None if plan is None else _fitting(trials, plan, remaining, over)


def _search(
    study: Study, trials: Sequence[Trial], budget: Budget, remaining: float | None, proposer: Proposer
) -> NextTrial | StudyEnd:
    """Returns the next search trial; if time is too short for a process start, one that reuses the last process."""
    draft = _drafted(study, trials, proposer.propose(trials, len(trials)))
    if draft is None:
        return StudyEnd(ALL_TRIED)
    because = _no_room(study, trials, budget, remaining, draft)
    if because is None:
        return NextTrial(draft)
    where = study.spec.framework, study.spec.resources.device
    if isinstance(proposer, FrugalProposer) and goes_on(trials, trials[-1].configuration, *where):
        other = _drafted(study, trials, proposer.propose_in_process(trials, len(trials)))
        if other is not None and _no_room(study, trials, budget, remaining, other) is None:
            return NextTrial(other)
    return StudyEnd(because)


def _drafted(study: Study, trials: Sequence[Trial], proposed: tuple[Configuration, str] | None) -> TrialDraft | None:
    if proposed is None:
        return None
    configuration, source = proposed
    return study.draft(TrialKind.SEARCH, configuration, search_protocol(study, trials, configuration), source)


def _confirmation(study: Study, trials: Sequence[Trial], remaining: float | None, because: str) -> NextTrial | StudyEnd:
    # Where a round of both leaders does not fit, the one with the same learning has its own.
    needed = 0.0
    for leaders in (2, 1):
        plan = confirmation.next_trial(study, trials, at_most=leaders)
        if plan is None:
            return StudyEnd(because)
        step = _fitting(trials, plan, remaining)
        if step is not None:
            return step
        needed = _round_s(trials, plan, confirmation.bare(plan.draft.protocol))
    return StudyEnd(_unused(remaining or 0.0, needed, "a round of confirmation takes"))


def _fitting(
    trials: Sequence[Trial], plan: confirmation.ConfirmationPlan, remaining: float | None, over: float = 0.0
) -> NextTrial | None:
    """Returns the plan's trial with the protocol that fits the round's time, or ``None``. ``over``: seconds of the
    grace period that the second half of a round may use."""
    draft = plan.draft
    for protocol in (draft.protocol, confirmation.bare(draft.protocol)):
        if remaining is None or remaining >= _round_s(trials, plan, protocol):
            return NextTrial(replace(draft, protocol=plan.narrow(protocol, draft.configuration)))
    last = confirmation.barest(draft.protocol)
    if over and remaining is not None and remaining + over >= _round_s(trials, plan, last):
        return NextTrial(replace(draft, protocol=last))
    return None


def _confirmable(study: Study, trials: Sequence[Trial], remaining: float) -> bool:
    """Tells whether a leader's confirmation has begun, or its shortest first round fits into the time."""
    if any(trial.kind is TrialKind.CONFIRM for trial in trials):
        return True
    plan = confirmation.next_trial(study, trials, at_most=1)
    return plan is not None and remaining >= _round_s(trials, plan, confirmation.bare(plan.draft.protocol))


def _round_s(trials: Sequence[Trial], plan: confirmation.ConfirmationPlan, protocol: Protocol) -> float:
    """Predicts the seconds that the plan's round still needs, without other rounds."""
    return sum(confirmation.predict_s(plan.narrow(protocol, c), trials, c) for c in plan.round)


def _by_reward(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.reason is FailureReason.REWARD_ERROR


def hopeless(trials: Sequence[Trial]) -> str | None:
    """Explains why no further trial can succeed if the first ones failed; ``None`` if one may."""
    mended = retries.disproved(trials)
    judged_trials = [t for t in trials if t.number not in mended and (not t.inconclusive or _by_reward(t))]
    first = judged_trials[0].outcome if judged_trials else None
    if first is None:
        return None
    if _by_reward(judged_trials[0]):
        return f"the reward fails, which no configuration can mend: {first.message}"
    if first.reason is FailureReason.NAN and first.phase == StartupPart.FIRST_BATCH.value:
        return f"no configuration can mend this: {first.message}"
    trials = [t for t in judged_trials if not _by_reward(t)]
    before_any_update = not trials[0].cycles and first.reason in (FailureReason.ILLEGAL, FailureReason.NAN)
    enough = SAME_FAILURES // 2 if before_any_update else SAME_FAILURES
    if len(trials) < enough or first.reason is FailureReason.OOM or any(t.state is not TrialState.FAIL for t in trials):
        return None
    causes = {(t.outcome.reason, t.outcome.message) for t in trials if t.outcome is not None}
    return f"the first {len(trials)} trials all failed alike: {first.sentence()}" if len(causes) == 1 else None
