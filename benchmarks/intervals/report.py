"""Rows of one table, or of several side by side, as Markdown. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.intervals.scoring import LOOKS, RATIOS, Row

Figures = Sequence[tuple[str, float | None]]
"""Fields of a row, each with the true ratio that it is for; ``None``: the mean over all of them."""
LAST = LOOKS[-1]
COVERAGE: Mapping[str, Figures] = {
    f"covers, {', '.join(map(str, LOOKS))} rounds": [(f"covers_{k}", None) for k in LOOKS],
    f"covers at 1.0; 1.1; 1.25; 1.5; 2.33, {LAST} rounds": [(f"covers_{LAST}", r) for r in RATIOS],
    "false unconfirmed; in any round": [("faster_0", 1.0), ("faster_at_any_look", 1.0)],
    f"half width at 1.0, 1, 3, {LAST} rounds": [(f"half_width_{k}", 1.0) for k in (1, 3, LAST)],
    f"stated ÷ true, 0, 1, {LAST} rounds": [(f"stated_over_true_{k}", None) for k in (0, 1, LAST)],
}
POWER: Mapping[str, Figures] = {
    **{f"proves {r}, 1, 3, {LAST} rounds": [(f"faster_{k}", r) for k in (1, 3, LAST)] for r in RATIOS[1:]},
    "undecided at 1.25; 1.5; 2.33": [(f"undecided_{LAST}", r) for r in RATIOS[2:]],
    "rounds at 1.0; 1.5": [("rounds", r) for r in (1.0, 1.5)],
    "cycles at 1.0; 1.5": [("cycles", r) for r in (1.0, 1.5)],
    "cycles discarded; kept as noisy": [("discarded_share", None), ("noisy_share", None)],
}


def as_text(tables: Sequence[Sequence[Row]]) -> str:
    """Two tables by noise: coverage, and what is proven. Figures of several tables stand in one cell, by →."""
    parts = []
    for columns in (COVERAGE, POWER):
        lines = [f"| noise | {' | '.join(columns)} |", f"|{'---|' * (1 + len(columns))}"]
        for name in dict.fromkeys(row["noise"] for row in tables[-1]):
            rows = [[row for row in table if row["noise"] == name] for table in tables]
            cells = [" → ".join(_cell(some, figures) for some in rows if some) for figures in columns.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(rows: Sequence[Row], figures: Figures) -> str:
    """Shares are printed in per cent, without the sign."""
    words = []
    for field, ratio in figures:
        some = [v for row in rows if ratio in (None, row["ratio"]) and isinstance(v := row[field], float | int)]
        share = 100 if field.startswith(("covers", "faster", "undecided", "discarded", "noisy")) else 1
        digits = 1 if field.startswith(("covers", "rounds", "cycles")) else 0 if share > 1 else 2
        words.append(f"{share * statistics.fmean(some):.{digits}f}" if some else "-")
    return ", ".join(words)
