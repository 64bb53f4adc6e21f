"""Many studies in one table: for each machine, arm and budget what was decided, proven, lost and left."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.decisions.studies import Verdict

HEADS = (
    "machine", "arm", "budget s", "studies", "search trials", "OOMs", "of the best", "s to 5 %", "proven",
    "s to proven 5 %", "false", "covers", "half width", "rounds", "processes", "unused s",
)  # fmt: skip
LEGEND = (
    "Over studies. search trials: median number decided; OOMs: mean number that ran out of memory; of the best: "
    "median true tokens/hour of the answer over the best configuration's, and 95 % of that median; s to 5 %: median "
    "seconds of budget to the first search trial of a configuration within 5 % of the best, and the share of studies "
    "that came to it; proven: share whose answer is faster than the baseline, by a round of confirmation, with an "
    "interval that excludes no gain; s to proven 5 %: as s to 5 %, until that gain was proven; false: share whose "
    "answer claims a gain, confirmed or not, that is none; covers: share of the intervals given that hold the true "
    "gain; half width: median, in logarithms; rounds, processes: mean number run and started; unused s: median."
)


def figures(found: Sequence[Verdict]) -> dict[str, Any]:
    """Of the studies of one machine, arm and budget; what no study has is ``None``."""
    covered = [v.covered for v in found if v.covered is not None]
    widths = [v.width for v in found if v.width is not None]
    return {
        "studies": len(found),
        "search_trials": statistics.median(v.search_trials for v in found),
        "ooms": statistics.fmean(v.ooms for v in found),
        "reached": statistics.median(v.reached for v in found),
        "reached_interval": median_interval([v.reached for v in found]),
        "seconds_to_near": _reached(statistics.median(v.near_s for v in found)),
        "near_share": statistics.fmean(not math.isinf(v.near_s) for v in found),
        "proven_share": statistics.fmean(v.proven for v in found),
        "seconds_to_proven": _reached(statistics.median(v.close_s for v in found)),
        "close_share": statistics.fmean(not math.isinf(v.close_s) for v in found),
        "false_share": statistics.fmean(v.falsely for v in found),
        "covered_share": statistics.fmean(covered) if covered else None,
        "half_width": statistics.median(widths) if widths else None,
        "rounds": statistics.fmean(v.rounds for v in found),
        "processes": statistics.fmean(v.started for v in found),
        "oom_share": statistics.fmean(v.oom_share for v in found),
        "unused_s": statistics.median(v.unused_s for v in found),
    }


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the median of all studies there could be lies with 95 %, if there are six."""
    ordered, n = sorted(values), len(values)
    below, rank = 0.0, 0
    while rank < n // 2 and below + math.comb(n, rank) * 0.5**n <= 0.025:
        below += math.comb(n, rank) * 0.5**n
        rank += 1
    first = max(0, rank - 1)
    return ordered[first], ordered[n - 1 - first]


def _reached(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def row(machine: str, arm: str, budget: float, own: Mapping[str, Any]) -> str:
    """One line of the Markdown table."""
    low, high = own["reached_interval"]
    cells = (
        machine, arm, f"{budget:.0f}", str(own["studies"]), f"{own['search_trials']:g}", f"{own['ooms']:.1f}",
        f"{own['reached']:.3f} ({low:.2f}-{high:.2f})", f"{_whole(own['seconds_to_near'])} ({own['near_share']:.0%})",
        f"{own['proven_share']:.0%}", f"{_whole(own['seconds_to_proven'])} ({own['close_share']:.0%})",
        f"{own['false_share']:.0%}", "-" if own["covered_share"] is None else f"{own['covered_share']:.0%}",
        "-" if own["half_width"] is None else f"{own['half_width']:.2f}", f"{own['rounds']:.1f}",
        f"{own['processes']:.1f}", f"{own['unused_s']:.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _whole(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def table(rows: Sequence[str]) -> str:
    """Markdown."""
    return "\n".join(["| " + " | ".join(HEADS) + " |", "|" + " --- |" * len(HEADS), *rows, "", LEGEND])
