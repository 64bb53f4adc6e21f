"""How often stated intervals hold what the framework itself shows, and by how much gains are overstated."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

HALVES = ("quiet", "disturbed")


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the figures of all studies, and of both halves apart."""
    halves = {half: [row for row in rows if (row["disturbed"] == "none") == (half == "quiet")] for half in HALVES}
    return {"all": _figures(rows), **{half: _figures(some) for half, some in halves.items()}}


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    stated = [row for row in rows if row["decided"]]
    judged = [row for row in stated if row["referee"] is not None]
    return {
        "studies": len(rows),
        "undecided": len(rows) - len(stated),
        "not_refereed": len(stated) - len(judged),
        "judged": len(judged),
        **{f"held_{by}": sum(_held(row, by) for row in judged) for by in ("by_tokens", "by_seconds")},
        **{f"stated_over_referee_{by}": _overstated(judged, by) for by in ("by_tokens", "by_seconds")},
    }


def _held(row: Mapping[str, Any], by: str) -> bool:
    return bool(row["stated"]["low"] <= row["referee"][by] <= row["stated"]["high"])


def _overstated(rows: Sequence[Mapping[str, Any]], by: str) -> float | None:
    ratios = [(1.0 + row["stated"]["value"]) / (1.0 + row["referee"][by]) for row in rows]
    return round(statistics.median(ratios), 4) if ratios else None


def words(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the summary as a table."""
    heads = ("studies", "n", "undecided", "not judged", "interval holds", "stated ÷ referee, median")
    lines = [heads, ("---",) * len(heads)]
    for half, one in figures.items():
        held = f"{one['held_by_tokens']} of {one['judged']} ({one['held_by_seconds']} by seconds)"
        ratios = (one["stated_over_referee_by_tokens"], one["stated_over_referee_by_seconds"])
        overstated = "-" if None in ratios else f"{ratios[0]:.3f} ({ratios[1]:.3f} by seconds)"
        counts = (str(one[key]) for key in ("studies", "undecided", "not_refereed"))
        lines.append((half, *counts, held, overstated))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
