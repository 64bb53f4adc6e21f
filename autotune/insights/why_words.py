"""Formats the reasons of a recommendation as sentences and as JSON, for the screen, the report and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.documents.study import plain
from autotune.insights.ruled_out import RuledOut, RulingCause
from autotune.insights.why import Change, FailedNeighbour, RowReasons, Why
from autotune.wording.numbers import counted, ratio_words, signed_percent
from autotune.wording.text import knob_value
from trainer.child.contract import encode

if TYPE_CHECKING:
    from autotune.statistics.knob_shares import KnobShares, Share

MOST_NUMBERS = 8
LEAST_ELSEWHERE = 0.05
"""Change in phases that no changed knob acts on from which it is told."""


def share_words(shares: KnobShares, share: Share) -> str:
    """Formats a share: ``torch_compile on with host_allocator keep: +40 % (+5 to +86 %), never tried apart``."""
    changes = " with ".join(f"{name} {knob_value(shares.changes[name][1], name)}" for name in share.knobs)
    return f"{changes}: {range_words(share)}{', never tried apart' if len(share.knobs) > 1 else ''}"


def range_words(share: Share) -> str:
    """Returns ``+25.0 % (-1.0 % to +57.0 %)``; in words where the interval tells nothing."""
    if share.low == share.high:
        return "nothing, it acts on no phase of these cycles"
    return ratio_words(share.value, share.low, share.high)


def summary_words(shares: KnobShares) -> str:
    """Returns ``together +134.0 %, by one model of 15 trials; no single knob is proven`` and the rest."""
    proven = ", ".join(" with ".join(share.knobs) for share in shares.shares if share.proven)
    together = range_words(shares.together).partition(" (")[0]
    verdict = f"proven: {proven}" if proven else "no single knob is proven"
    parts = [f"together {together}, by one model of {counted(shares.trials, 'trial')}", verdict]
    if abs(shares.elsewhere) >= LEAST_ELSEWHERE:
        parts.append(f"{signed_percent(shares.elsewhere)} of it in phases that none of them acts on")
    return "; ".join(parts)


def shares_lines(shares: KnobShares | None) -> list[str]:
    """Returns a line for the share of each changed knob, and one for all together; none where no knob is changed."""
    if shares is None:
        return []
    return [*(share_words(shares, share) for share in shares.shares), summary_words(shares)]


def knob_lines(row: RowReasons) -> list[str]:
    """Returns the lines of a row's knobs: shares of the changed ones, and failures one knob away."""
    return [*shares_lines(row.shares), *map(failed_neighbour_words, row.failed_neighbours)]


def failed_neighbour_words(failed: FailedNeighbour) -> str:
    """Describes a failed trial one knob away: ``micro_batch_size 8 -> 16: OOM in update (device), #9``."""
    if failed.at_least is None:
        return f"{failed.change.words()}: {failed.cause}, #{failed.trial}"
    gain = signed_percent(failed.at_least)
    return f"{failed.change.words()}: stopped, against it the answer gains at least {gain}, #{failed.trial}"


def ruled_words(ruled: RuledOut) -> str:
    """Describes a reason and its counts: ``memory: 120 combinations; trial 9 (...) ran out of ...``."""
    what = "combination" if ruled.by in (RulingCause.LEGALITY, RulingCause.MEMORY) else "trial"
    many = f"{'' if ruled.exact else 'about '}{counted(ruled.count, what)}"
    shown = f" ({numbers(ruled.trials)})" if ruled.trials and ruled.by is not RulingCause.MEMORY else ""
    said = f"{ruled.by.value}, {ruled.name}: {many}{shown}"
    example = f"; {ruled.sentence.removesuffix('.')}" if ruled.sentence else ""
    return said + example


def numbers(trials: Sequence[int]) -> str:
    """Formats trial numbers as ``#0, #7``; a long list is cut, with the count of the rest."""
    shown = ", ".join(f"#{n}" for n in trials[:MOST_NUMBERS])
    return shown if len(trials) <= MOST_NUMBERS else f"{shown} and {len(trials) - MOST_NUMBERS} more"


def why_json(why: Why | None) -> dict[str, Any] | None:
    """Converts ``Why`` to the public JSON; ``None`` without reasons."""
    if why is None:
        return None
    document: dict[str, Any] = plain(
        {
            "rows": [
                {
                    "title": row.title,
                    "limits": list(row.limits),
                    "shares": shares_json(row.shares),
                    "failed_neighbours": [encode(failed) for failed in row.failed_neighbours],
                }
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
    return {
        "by": ruled.by.value,
        "name": ruled.name,
        "count": ruled.count,
        "exact": ruled.exact,
        "sentence": ruled.sentence or None,
        "trials": list(ruled.trials),
    }
