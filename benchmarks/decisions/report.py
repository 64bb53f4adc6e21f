"""Many studies in one table: for each machine, arm and budget what was decided, proven, lost and left."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.decisions.studies import Verdict

HEADS = (
    "machine", "arm", "budget s", "studies", "search trials", "proven", "false", "covers", "half width", "of the best",
    "s to 5 %", "rounds", "processes", "lost to OOM", "unused s",
)  # fmt: skip
LEGEND = (
    "Over studies. search trials: median number decided; proven: share whose answer is faster than the baseline, "
    "with an interval that excludes no gain; false: share whose answer says so and is not; covers: share of the "
    "intervals given that hold the true gain; half width: median, in logarithms; of the best: median true "
    "tokens/hour of the answer over the best configuration's; s to 5 %: median seconds of budget to a proven gain "
    "within 5 % of the best, and the share of studies that came to it; rounds, processes: mean number run and "
    "started; lost to OOM: mean share of the seconds used; unused s: median."
)


def figures(found: Sequence[Verdict]) -> dict[str, Any]:
    """Of the studies of one machine, arm and budget; what no study has is ``None``."""
    covered = [v.covered for v in found if v.covered is not None]
    widths = [v.width for v in found if v.width is not None]
    close = statistics.median(v.close_s for v in found)
    return {
        "studies": len(found),
        "search_trials": statistics.median(v.search_trials for v in found),
        "proven_share": statistics.fmean(v.proven for v in found),
        "false_share": statistics.fmean(v.falsely for v in found),
        "covered_share": statistics.fmean(covered) if covered else None,
        "half_width": statistics.median(widths) if widths else None,
        "reached": statistics.median(v.reached for v in found),
        "seconds_to_proven": None if math.isinf(close) else close,
        "close_share": statistics.fmean(not math.isinf(v.close_s) for v in found),
        "rounds": statistics.fmean(v.rounds for v in found),
        "processes": statistics.fmean(v.started for v in found),
        "oom_share": statistics.fmean(v.oom_share for v in found),
        "unused_s": statistics.median(v.unused_s for v in found),
    }


def row(machine: str, arm: str, budget: float, own: Mapping[str, Any]) -> str:
    """One line of the Markdown table."""
    half = "-" if own["half_width"] is None else f"{own['half_width']:.2f}"
    covers = "-" if own["covered_share"] is None else f"{own['covered_share']:.0%}"
    close = "-" if own["seconds_to_proven"] is None else f"{own['seconds_to_proven']:.0f}"
    cells = (
        machine, arm, f"{budget:.0f}", str(own["studies"]), f"{own['search_trials']:g}", f"{own['proven_share']:.0%}",
        f"{own['false_share']:.0%}", covers, half, f"{own['reached']:.0%}", f"{close} ({own['close_share']:.0%})",
        f"{own['rounds']:.1f}", f"{own['processes']:.1f}", f"{own['oom_share']:.1%}", f"{own['unused_s']:.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def table(rows: Sequence[str]) -> str:
    """Markdown."""
    return "\n".join(["| " + " | ".join(HEADS) + " |", "|" + " --- |" * len(HEADS), *rows, "", LEGEND])
