"""Which further trials a leader must pass before it is recommended; pure.

A leader was picked for having measured best, so its own figure flatters it (the winner's curse).
It therefore runs again in fresh processes, next to the reference, with the order turned round in
every second round, and with maximum-length cycles in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune import evidence
from autotune.budget import predict
from autotune.domain import Configuration, FailureReason, Protocol, StudySpec, Trial, TrialDraft, TrialKind, TrialState

MIN_ROUNDS = 3
"""Two leave two degrees of freedom for the noise; a third halves the interval (t sqrt(2/n) sigma: 4.3, then 2.3)."""
MAX_ROUNDS = 5
RESERVED_SHARE = 0.4
"""Of the budget, at most: a search that finds little is not mended by knowing well how little it found."""

BARE_MARGIN = 1.15
"""Kept for a round without extras, to its prediction: a round whose second half no longer fits has shown nothing."""


@dataclass(frozen=True)
class Plan:
    """The next confirmation trial, and what its round still holds."""

    draft: TrialDraft
    round: tuple[Configuration, ...]
    """Configurations this round still has to run, this one first; half a round shows nothing."""
    owed: tuple[Configuration, ...]
    """All that must still run: to the end of the least number of rounds, or of the one beyond it."""
    reference: Configuration | None
    """What the gain will be over; ``None`` where that is what leads, because the baseline failed."""

    def narrow(self, protocol: Protocol, configuration: Configuration) -> Protocol:
        """``protocol`` for that configuration in a round by itself, where the rounds do not all fit."""
        return of_reference(protocol) if configuration == self.reference else protocol


def protocol_for(spec: StudySpec, lengths: Sequence[int]) -> Protocol:
    """Recorded-length cycles alternating with maximum-length ones, one natural cycle for the rewards, one at 2x."""
    return replace(spec.protocol, natural=1, maximum=1, double=1, lengths=tuple(lengths))


def bare(protocol: Protocol) -> Protocol:
    """A confirmation's protocol without what may be missing from it: the cycle at twice the lengths, repeats."""
    return replace(protocol, double=0, max_repeats=0)


def of_reference(protocol: Protocol) -> Protocol:
    """A confirmation's protocol for what the gain is over: only what the gain rests on. Cycles at other lengths are for
    what is handed back; of TRL's defaults they took 5 of 32 minutes. Without recorded lengths a natural cycle gives
    them.
    """
    return replace(protocol, natural=0 if protocol.lengths else protocol.natural, maximum=0, double=0)


def next_trial(
    spec: StudySpec, trials: Sequence[Trial], lengths: Sequence[int], rows: int, at_most: int = 2
) -> Plan | None:
    """The next confirmation trial, or ``None`` when every leader has had its rounds.

    Only the first ``at_most`` leaders are looked at; the one with the same learning comes first.

    A leader whose confirmation fails is no longer feasible, so the next best takes its place.
    """
    anchor = evidence.reference(trials, spec.baseline)
    if anchor is None:
        return None
    contenders = _contenders(spec, trials, anchor.configuration)[:at_most]
    owed = _owed(trials, contenders, anchor.configuration)
    if not owed:
        return None
    pair, configuration = owed[0]
    draft = TrialDraft(
        kind=TrialKind.CONFIRM,
        configuration=configuration,
        protocol=protocol_for(spec, lengths),
        rows_per_update=rows,
        pair=pair,
        source="confirm",
    )
    return Plan(
        draft=draft,
        round=tuple(c for p, c in owed if p == pair),
        owed=tuple(c for _, c in owed),
        reference=None if anchor.configuration in contenders else anchor.configuration,
    )


def reserve_s(spec: StudySpec, trials: Sequence[Trial], total_s: float, lengths: Sequence[int] = ()) -> float:
    """Wall seconds to keep for confirming the present leaders; 0 while nothing was measured.

    Args:
        total_s: the whole budget. At most ``RESERVED_SHARE`` of it is kept: for all rounds of both leaders, else of
            the one with the same learning, else for as many rounds of that one as that is, narrow ones; for one
            ``bare`` one at least, once something leads.
        lengths: recorded ones, if there are any yet.
    """
    anchor = evidence.reference(trials, spec.baseline)
    if anchor is None:
        return 0.0
    protocol, contenders = protocol_for(spec, lengths), _contenders(spec, trials, anchor.configuration)
    reference = predict_s(of_reference(protocol), trials, anchor.configuration)
    if not contenders:  # Before anything leads, room for one round of something that may; but then something must run.
        return min(reference + predict_s(protocol, trials, None), RESERVED_SHARE * total_s)
    whole = [predict_s(protocol, trials, c) for c in (anchor.configuration, *contenders)]
    narrow = reference + whole[1]
    fewer = [rounds * narrow for rounds in range(MIN_ROUNDS - 1, 0, -1)]
    for kept in (MIN_ROUNDS * sum(whole), MIN_ROUNDS * sum(whole[:2]), *fewer):
        if kept <= RESERVED_SHARE * total_s:
            return kept
    barest = predict_s(bare(of_reference(protocol)), trials, anchor.configuration)
    barest += predict_s(bare(protocol), trials, contenders[0])
    return min(narrow, BARE_MARGIN * barest)


def predict_s(protocol: Protocol, trials: Sequence[Trial], configuration: Configuration | None) -> float:
    """Predicted seconds of a trial, ``None`` being a configuration nothing is known of; 0 before anything is."""
    cost = predict(trials, configuration)
    return 0.0 if cost is None else cost.total(protocol)


def _contenders(spec: StudySpec, trials: Sequence[Trial], anchor: Configuration) -> list[Configuration]:
    """Leaders to confirm. The baseline leading needs no proof; a mere reference that leads does."""
    found = [leader.configuration for leader in evidence.leaders(trials, spec.baseline, spec.framework)]
    return [c for c in found if c != anchor or anchor != spec.baseline]


def _owed(
    trials: Sequence[Trial], contenders: Sequence[Configuration], anchor: Configuration
) -> list[tuple[int, Configuration]]:
    """(round, configuration) still to run, in order; open rounds are completed first."""
    done = {(t.pair, t.configuration) for t in trials if t.kind is TrialKind.CONFIRM and _counts(t)}
    owed: list[tuple[int, Configuration]] = []
    for pair in range(MAX_ROUNDS):
        wanted = [c for c in contenders if pair < MIN_ROUNDS or _undecided(trials, c, anchor)]
        if not wanted:
            continue
        order = list(dict.fromkeys([anchor, *wanted]))
        if pair % 2:
            order.reverse()
        owed.extend((pair, c) for c in order if (pair, c) not in done)
        if pair >= MIN_ROUNDS and owed:
            break
    return owed


def _counts(trial: Trial) -> bool:
    """A run that was broken off is owed again; one the machine kept breaking is not tried for ever."""
    if trial.state is TrialState.FAIL and trial.outcome is not None:
        return trial.outcome.reason is FailureReason.INFRA
    return True


def _undecided(trials: Sequence[Trial], configuration: Configuration, anchor: Configuration) -> bool:
    if configuration == anchor:
        return False
    found = evidence.gain(trials, configuration, anchor)
    return found is not None and found.pairs >= MIN_ROUNDS and not found.excludes_zero
