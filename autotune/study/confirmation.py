"""Plans the trials that confirm a leader before it is recommended. Pure.

A leader was selected because it measured best, so its own figure is biased upwards (the winner's curse). It runs again
in new processes, next to the reference, in the opposite order every second round. The first round also measures natural
and longer lengths; later rounds only have the cycles that the gain is based on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import (
    ENOUGH_CYCLES,
    Configuration,
    FailureReason,
    Protocol,
    Study,
    Trial,
    TrialDraft,
    TrialKind,
    TrialState,
)
from autotune.statistics import evidence
from autotune.statistics.lengths import replayed
from autotune.study.budget import predict
from autotune.study.protocols import with_repeats

MIN_ROUNDS = 1
"""Least rounds; more follow only while they can change the answer: the interval includes no gain, and time is left."""
MAX_ROUNDS = 5
"""Most rounds; twice as many on several nodes, whose gains need a higher confidence (``evidence.ON_SEVERAL_NODES``)."""
KEPT_ROUNDS = 3
"""Number of rounds for which time is reserved, if a share of the budget suffices."""
SHARE = 0.2
"""Largest share of a study's time that confirmation may take; one round may take more."""
SMALL = 0.6
"""Lead in log tokens/hour below which ``SHARE`` is doubled, as one round may not prove the lead: half its interval is
some 0.4 on a GPU, and a leader is slower in a round than when it was chosen."""
STOOD = 5
"""Search trials that a leader must have led before it is confirmed during the search."""
WORTH = 0.05
"""Least relative lead over configurations confirmed before, for a confirmation during the search."""

TRIES = 2
"""Most runs of a configuration in one round: a run that is too disturbed for a gain is repeated."""

BARE_MARGIN = 1.05
"""Factor on the predicted seconds reserved for a round without extras; half a round shows nothing."""


@dataclass(frozen=True)
class ConfirmationPlan:
    """The next confirmation trial, with the rest of its round."""

    draft: TrialDraft
    round: tuple[Configuration, ...]
    """Configurations that this round still has to run, this trial's first; half a round shows nothing."""
    reference: Configuration | None
    """Configuration that the gain is relative to; ``None`` if the reference leads, because the baseline failed."""

    def narrow(self, protocol: Protocol, configuration: Configuration) -> Protocol:
        """Returns ``protocol`` for a configuration of the round; the reference has only the cycles of the gain."""
        return of_reference(protocol) if configuration == self.reference else protocol


def protocol_for(study: Study, trials: Sequence[Trial] = (), configuration: Configuration | None = None) -> Protocol:
    """Returns the first round's protocol: recorded-length cycles, then a natural one for the rewards, one of maximum
    length, and one at twice the lengths."""
    lengths = replayed(study, trials, configuration)
    return with_repeats(replace(study.spec.protocol, natural=1, maximum=1, double=1, lengths=lengths), trials)


def bare(protocol: Protocol) -> Protocol:
    """Drops a confirmation's optional cycles: those at twice the lengths, and the natural one if lengths are
    recorded."""
    natural = 0 if protocol.lengths else protocol.natural
    return replace(protocol, natural=natural, double=0, max_repeats=min(protocol.max_repeats, Protocol.max_repeats))


def barest(protocol: Protocol) -> Protocol:
    """Returns the smallest protocol that a gain can be based on, for the second half of a round without more time."""
    return replace(of_reference(bare(protocol)), max_repeats=0)


def of_reference(protocol: Protocol) -> Protocol:
    """Cuts a confirmation's protocol to the cycles that the gain is based on, including natural ones if no lengths are
    recorded."""
    return replace(protocol, natural=0 if protocol.lengths else protocol.natural, maximum=0, double=0)


def next_trial(study: Study, trials: Sequence[Trial], at_most: int = 2) -> ConfirmationPlan | None:
    """Returns the next confirmation trial, or ``None`` when every leader has completed its rounds. Only the first
    ``at_most`` leaders count, first the one that learns as the baseline does; the next best replaces a failed one."""
    anchor = evidence.reference(trials, study.spec.baseline)
    if anchor is None:
        return None
    contenders = _contenders(study, trials, anchor.configuration)[:at_most]
    owed = _owed(trials, contenders, anchor.configuration)
    if not owed:
        return None
    pair, configuration = owed[0]
    protocol = protocol_for(study, trials, configuration)
    draft = study.draft(TrialKind.CONFIRM, configuration, of_reference(protocol) if pair else protocol, "confirm")
    return ConfirmationPlan(
        draft=replace(draft, pair=pair),
        round=tuple(c for _, c in owed),
        reference=None if anchor.configuration in contenders else anchor.configuration,
    )


def reserve_s(study: Study, trials: Sequence[Trial], total_s: float) -> float:
    """Returns the wall seconds of the budget ``total_s`` to reserve for confirming the present leaders; 0 before any
    measurement.

    Before the leader is decided: as many rounds as fit in ``SHARE`` of the budget, at most ``KEPT_ROUNDS``, for both
    leaders if they fit, and at least one ``bare`` round. Afterwards: the new leader's part of one round.
    """
    anchor = evidence.reference(trials, study.spec.baseline)
    if anchor is None:
        return 0.0
    protocol, contenders = protocol_for(study), _contenders(study, trials, anchor.configuration)
    reference = predict_s(of_reference(protocol), trials, anchor.configuration)
    if not contenders:  # Before anything leads, room for one round of something that may; but then something must run.
        return min(reference + predict_s(protocol, trials, None), SHARE * total_s)
    first, reference_bare = contenders[0], predict_s(bare(of_reference(protocol)), trials, anchor.configuration)
    owed = _owed(trials, contenders[:1], anchor.configuration)
    if not owed:
        return predict_s(bare(protocol), trials, first)
    whole = [predict_s(protocol, trials, c) for c in contenders]
    further = [predict_s(of_reference(protocol), trials, c) for c in contenders]
    one, again = reference + whole[0], reference + further[0]
    both = reference + sum(whole) + (KEPT_ROUNDS - 1) * (reference + sum(further))
    held = evidence.feasible(trials)
    lead = math.log(evidence.merit(held[first]) / evidence.merit(held[anchor.configuration]))
    share = 2 * SHARE if first != anchor.configuration and lead < SMALL else SHARE
    for kept in (both, *(one + more * again for more in range(KEPT_ROUNDS - 1, -1, -1))):
        if kept <= share * total_s:
            return kept
    ran = all(c != anchor.configuration for _, c in owed)
    least = predict_s(bare(protocol), trials, first) + (0.0 if ran else reference_bare)
    return min(one, BARE_MARGIN * least)


def between(study: Study, trials: Sequence[Trial], spent_s: float) -> ConfirmationPlan | None:
    """Returns a confirmation round that is due during the search, or ``None``; ``spent_s`` are wall seconds of the
    study.

    A round is due when the leader has led for ``STOOD`` search trials, is ``WORTH`` it, and all confirmations,
    including this round, take at most ``SHARE`` of the time so far.
    """
    plan = next_trial(study, trials, at_most=1)
    if plan is None or plan.reference is None:
        return None
    leader = next(iter(_contenders(study, trials, plan.reference)))
    held = evidence.feasible(trials)
    found = max(t.number for t in held[leader])
    stood = sum(t.kind is TrialKind.SEARCH and t.number > found for t in trials)
    before = [
        evidence.merit(runs) for c, runs in held.items() if c != leader and TrialKind.CONFIRM in {t.kind for t in runs}
    ]
    if stood < STOOD or any(evidence.merit(held[leader]) < (1 + WORTH) * merit for merit in before):
        return None
    round_s = sum(predict_s(plan.narrow(plan.draft.protocol, c), trials, c) for c in plan.round)
    confirming = sum(t.seconds or 0.0 for t in trials if t.kind is TrialKind.CONFIRM)
    return plan if confirming + round_s <= SHARE * (spent_s + round_s) else None


def half_done(study: Study, trials: Sequence[Trial]) -> ConfirmationPlan | None:
    """Returns the trial that completes the last round: its other half, or a disturbed half again; else ``None``."""
    newest = trials[-1] if trials else None
    if newest is None or newest.kind is not TrialKind.CONFIRM or not newest.state.is_finished:
        return None
    plan = next_trial(study, trials, at_most=1)
    if plan is None or plan.draft.pair != newest.pair:
        return None
    ran = {t.configuration for t in trials if t.kind is TrialKind.CONFIRM and t.pair == newest.pair and _counts(t)}
    again = plan.draft.configuration == newest.configuration
    alone = newest.configuration in ran and (len(ran) == 1 or again)
    return plan if alone else None


def predict_s(protocol: Protocol, trials: Sequence[Trial], configuration: Configuration | None) -> float:
    """Predicts the seconds of a trial; ``None`` is an untried configuration. 0 before any measured trial."""
    cost = predict(trials, configuration)
    return 0.0 if cost is None else cost.total(protocol)


def _contenders(study: Study, trials: Sequence[Trial], anchor: Configuration) -> list[Configuration]:
    """Returns the leaders to confirm. A leading baseline needs no proof; a leading reference of another kind does."""
    spec = study.spec
    found = [leader.configuration for leader in evidence.leaders(trials, spec.baseline, spec.framework)]
    return [c for c in found if c != anchor or anchor != spec.baseline]


def _owed(
    trials: Sequence[Trial], contenders: Sequence[Configuration], anchor: Configuration
) -> list[tuple[int, Configuration]]:
    """Returns the missing (round, configuration) pairs of the first incomplete round, in order."""
    done = _done(trials)
    for pair in range(2 * MAX_ROUNDS if evidence.on_several_nodes(trials) else MAX_ROUNDS):
        wanted = [c for c in contenders if pair < MIN_ROUNDS or _undecided(trials, c, anchor)]
        order = list(dict.fromkeys([anchor, *wanted])) if wanted else []
        if pair % 2:
            order.reverse()
        owed = [(pair, c) for c in order if (pair, c) not in done]
        if owed:
            return owed
    return []


def _done(trials: Sequence[Trial]) -> set[tuple[int | None, Configuration]]:
    """Returns each (round, configuration) that needs no further run."""
    runs: dict[tuple[int | None, Configuration], list[Trial]] = {}
    for trial in trials:
        if trial.kind is TrialKind.CONFIRM and _counts(trial):
            runs.setdefault((trial.pair, trial.configuration), []).append(trial)
    return {key for key, tries in runs.items() if len(tries) >= TRIES or not _was_disturbed(tries[-1])}


def _was_disturbed(trial: Trial) -> bool:
    """Tells whether a finished run has too few undisturbed cycles for a gain."""
    return trial.feasible and sum(not c.noisy for c in trial.speed_cycles()) < ENOUGH_CYCLES


def _counts(trial: Trial) -> bool:
    """Tells whether a run counts: an interrupted run is repeated, except one that the machine keeps interrupting."""
    if trial.state is TrialState.FAIL and trial.outcome is not None:
        return trial.outcome.reason is FailureReason.INFRA
    return True


def _undecided(trials: Sequence[Trial], configuration: Configuration, anchor: Configuration) -> bool:
    if configuration == anchor:
        return False
    found = evidence.gain(trials, configuration, anchor)
    return found is None or (found.pairs >= MIN_ROUNDS and not found.decided)
