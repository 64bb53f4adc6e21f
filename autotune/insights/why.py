"""Explains a recommendation: shares of changed knobs, failures one knob away, ruled-out configurations; as values,
sentences and JSON. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.documents.study import plain
from autotune.domain import Configuration, FailureReason, Trial, TrialKind, TrialState
from autotune.domain.differences import chosen_differences
from autotune.insights.feasibility import cause
from autotune.statistics import evidence
from autotune.statistics.retries import disproved
from autotune.wording.numbers import counted, ratio_words, signed_percent
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue
from trainer.child.contract import encode

if TYPE_CHECKING:  # it imports numpy and scipy, which a short command has no need of
    from autotune.statistics.knob_shares import KnobShares, Share

MOST_FAILED = 20
"""Most failed neighbours that are shown."""
MOST_NUMBERS = 8
LEAST_ELSEWHERE = 0.05
"""Least change in phases without a changed knob that is stated."""
GUARDS = frozenset({FailureReason.QUALITY, FailureReason.NAN})
"""Failures with wrong numbers, although the run itself did not break."""


class RulingCause(StrEnum):
    """Kind of reason that ruled out a combination or a trial."""

    LEGALITY = "legality"
    """A rule, before anything ran."""
    MEMORY = "memory"
    """Combinations that need at least as much memory as a trial that ran out of it."""
    GUARD = "guard"
    """A trial ran, and its numbers were wrong."""
    FAILURE = "failure"
    """A trial failed in another way."""
    STOPPED = "stopped"
    """A trial was stopped early because it could not win."""
    SLOWER = "slower"
    """A trial was measured completely, and is not faster."""
    UNPROVEN = "unproven"
    """A trial was measured faster, but its gain was not proven."""


@dataclass(frozen=True)
class RuledOut:
    """One reason, with the combinations and trials that it ruled out."""

    by: RulingCause
    name: str
    """Name of the rule, or the cause in few words."""
    count: int
    """Number of combinations of the space if ``by`` is LEGALITY or MEMORY, else of trials."""
    sentence: str = ""
    """Example for people."""
    trials: tuple[int, ...] = ()
    """Numbers of the trials that gave the reason."""
    exact: bool = True
    """False if ``count`` is an estimate, because the space is too large to enumerate."""


def by_trials(
    trials: Sequence[Trial], answers: Sequence[int], faster: Collection[Configuration] = ()
) -> tuple[RuledOut, ...]:
    """Collects the trials outside the recommendation by reason, each once: guards, failures, stopped, slower, unproven.

    Args:
        answers: numbers of the trials behind the recommendation and its reference.
        faster: configurations that measured faster than the recommended one in their row.
    """
    mended = disproved(trials)
    groups: dict[tuple[RulingCause, str], list[Trial]] = {}
    for trial in sorted(trials, key=lambda t: t.number):
        found = _verdict(trial, faster) if trial.number not in mended and trial.number not in answers else None
        if found is not None:
            groups.setdefault(found, []).append(trial)
    order = list(RulingCause)
    made = (
        RuledOut(by, name, len(found), _example(by, found[0]), tuple(t.number for t in found))
        for (by, name), found in groups.items()
    )
    return tuple(sorted(made, key=lambda r: (order.index(r.by), -r.count, r.name)))


def _verdict(trial: Trial, faster: Collection[Configuration]) -> tuple[RulingCause, str] | None:
    outcome = trial.outcome
    if trial.state is TrialState.FAIL and outcome is not None and outcome.reason is not None:
        if outcome.inconclusive:
            return None
        return (RulingCause.GUARD if outcome.reason in GUARDS else RulingCause.FAILURE), cause(outcome)
    if trial.at_most is not None:
        return RulingCause.STOPPED, "cannot win"
    if trial.feasible and trial.tokens_per_hour and not trial.emulated:
        if trial.configuration in faster:
            return RulingCause.UNPROVEN, "measured faster, not proven"
        return RulingCause.SLOWER, "measured and not faster"
    return None


def _example(by: RulingCause, trial: Trial) -> str:
    if by in (RulingCause.SLOWER, RulingCause.UNPROVEN) or trial.outcome is None:
        return ""
    return trial.outcome.sentence()


@dataclass(frozen=True)
class Change:
    """A knob's values in two configurations; ``None``: not set."""

    knob: str
    before: KnobValue | None
    after: KnobValue | None

    def words(self) -> str:
        """Formats the change: ``micro_batch_size 2 -> 8``."""
        return f"{self.knob} {knob_value(self.before, self.knob)} -> {knob_value(self.after, self.knob)}"


@dataclass(frozen=True)
class FailedNeighbour:
    """A trial one knob away without a speed: it failed, or was stopped because it could not win."""

    change: Change
    """Change from the answer to that trial."""
    trial: int
    cause: str | None = None
    """Cause of the failure; ``None`` if the trial was stopped."""
    at_least: float | None = None
    """Least gain of the answer over a trial that was stopped."""


@dataclass(frozen=True)
class RowReasons:
    """Reasons for one row of a recommendation."""

    title: str
    limits: tuple[str, ...]
    """Sentences on the limiting resource and, for memory, on the next step that a trial could not hold."""
    shares: KnobShares | None
    """Contribution of each changed knob; ``None`` if none is changed."""
    failed_neighbours: tuple[FailedNeighbour, ...]


@dataclass(frozen=True)
class Why:
    """Reasons for a whole recommendation, with counts of the search space."""

    rows: tuple[RowReasons, ...]
    ruled_out: tuple[RuledOut, ...]
    combinations: int
    """Number of different combinations of the space, legal or not."""
    legal: int
    tried: int
    """Number of combinations that were run."""
    exact: bool
    """True if ``combinations`` and ``legal`` are counts; False if they are estimates."""
    began: tuple[str, ...] = ()
    """Sentences on the earlier studies that the search began with; empty without any."""


def failed_neighbours(trials: Sequence[Trial], configuration: Configuration) -> tuple[FailedNeighbour, ...]:
    """Returns the first trials one knob away from ``configuration`` that failed or were stopped."""
    held, mended = evidence.feasible(trials), disproved(trials)
    own = evidence.speed(held[configuration]) if configuration in held else None
    found = []
    for trial in sorted(trials, key=lambda t: t.number):
        apart = chosen_differences(configuration, trial.configuration)
        if len(apart) != 1 or trial.number in mended:
            continue
        ((name, (here, there)),) = apart.items()
        change = Change(name, here, there)
        if trial.at_most and own:
            found.append(FailedNeighbour(change, trial.number, at_least=own / trial.at_most - 1.0))
        elif _failed(trial) and trial.outcome is not None:
            found.append(FailedNeighbour(change, trial.number, cause=cause(trial.outcome)))
    return tuple(found[:MOST_FAILED])


def _failed(trial: Trial) -> bool:
    searched = trial.kind.is_searched or trial.kind is TrialKind.CONFIRM
    blamed = trial.outcome is not None and not trial.outcome.ok and not trial.inconclusive
    return searched and trial.state is TrialState.FAIL and blamed


def share_words(shares: KnobShares, share: Share) -> str:
    """Formats a share: ``torch_compile on with host_allocator keep: +40 % (+5 to +86 %), never tried apart``."""
    changes = " with ".join(f"{name} {knob_value(shares.changes[name][1], name)}" for name in share.knobs)
    return f"{changes}: {range_words(share)}{', never tried apart' if len(share.knobs) > 1 else ''}"


def range_words(share: Share) -> str:
    """Returns ``+25.0 % (-1.0 % to +57.0 %)``; a phrase if the interval is uninformative."""
    if share.low == share.high:
        return "nothing, it acts on no phase of these cycles"
    return ratio_words(share.value, share.low, share.high)


def summary_words(shares: KnobShares) -> str:
    """Returns ``together +134.0 %, by one model of 15 trials; no single knob is proven`` with further details."""
    proven = ", ".join(" with ".join(share.knobs) for share in shares.shares if share.proven)
    together = range_words(shares.together).partition(" (")[0]
    verdict = f"proven: {proven}" if proven else "no single knob is proven"
    parts = [f"together {together}, by one model of {counted(shares.trials, 'trial')}", verdict]
    if abs(shares.elsewhere) >= LEAST_ELSEWHERE:
        parts.append(f"{signed_percent(shares.elsewhere)} of it in phases that none of them acts on")
    return "; ".join(parts)


def shares_lines(shares: KnobShares | None) -> list[str]:
    """Returns a line for the share of each changed knob, and one for all together; empty if no knob changed."""
    if shares is None:
        return []
    return [*(share_words(shares, share) for share in shares.shares), summary_words(shares)]


def knob_lines(row: RowReasons) -> list[str]:
    """Returns the lines of a row's knobs: shares of the changed ones, and failures one knob away."""
    return [*shares_lines(row.shares), *map(neighbour_words, row.failed_neighbours)]


def neighbour_words(failed: FailedNeighbour) -> str:
    """Describes a failed trial one knob away: ``micro_batch_size 8 -> 16: OOM in update (device), #9``."""
    if failed.at_least is None:
        return f"{failed.change.words()}: {failed.cause}, #{failed.trial}"
    gain = signed_percent(failed.at_least)
    return f"{failed.change.words()}: stopped, against it the answer gains at least {gain}, #{failed.trial}"


def ruled_words(ruled: RuledOut) -> str:
    """Describes a reason and its counts: ``not tried: 120 combinations, as trial 9 (...) ran out of ...``."""
    about, reason = "" if ruled.exact else "about ", ruled.sentence.removesuffix(".") or ruled.name
    if ruled.by in (RulingCause.LEGALITY, RulingCause.MEMORY):
        return f"not tried: {about}{counted(ruled.count, 'combination')}, as {reason}"
    word = "wrong numbers" if ruled.by is RulingCause.GUARD else ruled.by.value
    return f"{word}: {counted(ruled.count, 'trial')} ({numbers(ruled.trials)}); {reason}"


def numbers(trials: Sequence[int]) -> str:
    """Formats trial numbers as ``#0, #7``; a long list is cut, with the count of the rest."""
    shown = ", ".join(f"#{n}" for n in trials[:MOST_NUMBERS])
    return shown if len(trials) <= MOST_NUMBERS else f"{shown} and {len(trials) - MOST_NUMBERS} more"


def why_json(why: Why | None) -> dict[str, Any] | None:
    """Converts ``Why`` to the public JSON; ``None`` without reasons."""
    if why is None:
        return None
    rows = [
        {**vars(row), "shares": shares_json(row.shares), "failed_neighbours": list(map(encode, row.failed_neighbours))}
        for row in why.rows
    ]
    document: dict[str, Any] = plain({**vars(why), "rows": rows, "ruled_out": list(map(ruled_json, why.ruled_out))})
    return document


def shares_json(shares: KnobShares | None) -> dict[str, Any] | None:
    """Returns the shares of changed knobs as JSON; intervals are two-sided 95 %."""
    if shares is None:
        return None

    def figures(share: Share) -> dict[str, Any]:
        return {"gain": share.value, "low": share.low, "high": share.high, "proven": share.proven}

    changes = {name: encode(Change(name, *pair)) for name, pair in shares.changes.items()}
    return {
        "knobs": [
            {"changes": [changes[name] for name in s.knobs], **figures(s), "words": share_words(shares, s)}
            for s in shares.shares
        ],
        "together": figures(shares.together),
        "elsewhere_share": shares.elsewhere,
        "trials": shares.trials,
        "words": summary_words(shares),
    }


def ruled_json(ruled: RuledOut) -> dict[str, Any]:
    """Converts one reason that ruled something out to JSON."""
    document: dict[str, Any] = plain({**vars(ruled), "sentence": ruled.sentence or None})
    return document
