"""Reasons of a recommendation as sentences and as JSON, shared by the screen, the report and the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.documents.study import plain
from autotune.insights.ruled_out import RuledOut, RulingCause
from autotune.insights.why import Change, Contrast, FailedNeighbour, Reason, Why
from autotune.wording.numbers import counted, signed_percent
from autotune.wording.sentences import gain_words
from autotune.wording.text import knob_value
from trainer.child.contract import encode

LEAST_MOVE = 0.005
"""Share of the cycle below which a phase's change is not mentioned."""
MOST_PHASES = 3
MOST_NUMBERS = 8


def contrast_words(contrast: Contrast) -> str:
    """``micro_batch_size 2 -> 8: +31.0 % (...), #0 -> #5; of the cycle update -22.1 %, logprob -1.9 %``."""
    steps = " with ".join(change.words() for change in contrast.changes)
    said = f"{steps}: {gain_words(contrast.gain)}, {numbers(contrast.before)} -> {numbers(contrast.after)}"
    moved = {phase: share for phase, share in contrast.phases.items() if abs(share) >= LEAST_MOVE}
    parts = [f"{phase} {signed_percent(share)}" for phase, share in list(moved.items())[:MOST_PHASES]]
    return f"{said}; of the cycle {', '.join(parts)}" if parts else said


def reason_lines(reason: Reason) -> list[str]:
    """Evidence for one knob, one line each; never empty."""
    lines = [contrast_words(contrast) for contrast in reason.contrasts]
    if reason.together is not None:
        lines.append(f"{contrast_words(reason.together)}; not told apart")
    if reason.elsewhere:
        pairs = [
            f"{signed_percent(c.gain.value)} ({numbers(c.before)} -> {numbers(c.after)})" for c in reason.elsewhere
        ]
        lines.append(f"{_step(reason.elsewhere[0].changes, reason.knob)} beside other settings: {', '.join(pairs)}")
    lines += [failed_neighbour_words(failed) for failed in reason.failed_neighbours]
    if not lines:
        lines.append(f"{reason.knob} {knob_value(reason.here)}: what it gave was not measured apart from other knobs")
    return lines


def knob_lines(reasons: Sequence[Reason]) -> list[str]:
    """``reason_lines`` of all knobs, each line once; knobs without evidence share one line."""
    unknown = [f"{r.knob} {knob_value(r.here)}" for r in reasons if not _known(r)]
    lines = [line for reason in reasons if _known(reason) for line in reason_lines(reason)]
    if unknown:
        lines.append(f"not measured apart from other knobs: {', '.join(unknown)}")
    return list(dict.fromkeys(lines))


def _known(reason: Reason) -> bool:
    return bool(reason.contrasts or reason.together or reason.elsewhere or reason.failed_neighbours)


def failed_neighbour_words(failed: FailedNeighbour) -> str:
    """``micro_batch_size 8 -> 16: OOM in update (device), #9``."""
    if failed.at_least is None:
        return f"{failed.change.words()}: {failed.cause}, #{failed.trial}"
    gain = signed_percent(failed.at_least)
    return f"{failed.change.words()}: stopped, against it the answer gains at least {gain}, #{failed.trial}"


def ruled_words(ruled: RuledOut) -> str:
    """``memory: 120 combinations; trial 9 (...) ran out of ...``."""
    what = "combination" if ruled.by in (RulingCause.LEGALITY, RulingCause.MEMORY) else "trial"
    many = f"{'' if ruled.exact else 'about '}{counted(ruled.count, what)}"
    shown = f" ({numbers(ruled.trials)})" if ruled.trials and ruled.by is not RulingCause.MEMORY else ""
    said = f"{ruled.by.value}, {ruled.name}: {many}{shown}"
    example = f"; {ruled.sentence.removesuffix('.')}" if ruled.sentence else ""
    return said + example


def numbers(trials: Sequence[int]) -> str:
    """Trial numbers as text (``#0, #7``); a long list is cut, with the count of the rest."""
    shown = ", ".join(f"#{n}" for n in trials[:MOST_NUMBERS])
    return shown if len(trials) <= MOST_NUMBERS else f"{shown} and {len(trials) - MOST_NUMBERS} more"


def why_json(why: Why | None) -> dict[str, Any] | None:
    """The public JSON of ``Why``."""
    if why is None:
        return None
    document: dict[str, Any] = plain(
        {
            "rows": [
                {"title": row.title, "limits": list(row.limits), "knobs": [reason_json(r) for r in row.reasons]}
                for row in why.rows
            ],
            "ruled_out": [ruled_json(r) for r in why.ruled_out],
            "combinations": why.combinations,
            "legal": why.legal,
            "tried": why.tried,
            "exact": why.exact,
            "began": list(why.began),
        }
    )
    return document


def reason_json(reason: Reason) -> dict[str, Any]:
    """JSON of one knob's reason; intervals are two-sided 95 %, shares refer to the slower side's cycle."""
    return {
        "knob": reason.knob,
        "value": reason.here,
        "changed": reason.changed,
        "contrasts": [contrast_json(c) for c in reason.contrasts],
        "together": None if reason.together is None else contrast_json(reason.together),
        "elsewhere": [contrast_json(c) for c in reason.elsewhere],
        "fates": [
            {"change": _change(f.change), "trial": f.trial, "cause": f.cause or None, "at_least": f.at_least}
            for f in reason.failed_neighbours
        ],
        "words": reason_lines(reason),
    }


def contrast_json(contrast: Contrast) -> dict[str, Any]:
    """JSON of two compared configurations."""
    gain: Mapping[str, Any] = encode(contrast.gain)
    return {
        "changes": [_change(change) for change in contrast.changes],
        "gain": dict(gain),
        "before_trials": list(contrast.before),
        "after_trials": list(contrast.after),
        "phase_shares": dict(contrast.phases),
    }


def ruled_json(ruled: RuledOut) -> dict[str, Any]:
    """JSON of one reason that ruled something out."""
    return {
        "by": ruled.by.value,
        "name": ruled.name,
        "count": ruled.count,
        "exact": ruled.exact,
        "sentence": ruled.sentence or None,
        "trials": list(ruled.trials),
    }


def _change(change: Change) -> dict[str, Any]:
    return {"knob": change.knob, "before": change.before, "after": change.after}


def _step(changes: Sequence[Change], knob: str) -> str:
    return next(change.words() for change in changes if change.knob == knob)
