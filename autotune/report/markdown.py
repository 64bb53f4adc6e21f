"""Formats values as Markdown. Foreign text goes into code spans, so that it cannot act as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autotune.wording.numbers import cells_for
from autotune.wording.text import clean

LONGEST = 300
"""Longest foreign text, in characters; the rest is cut."""

BAR_WIDTH = 40


def code(value: object) -> str:
    """Returns a value as a code span that its content cannot end; ``-`` for empty text."""
    text = clean(value)
    if not text:
        return "-"
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def cell(value: object) -> str:
    """Returns a value as a code span for a cell of a table."""
    return code(value).replace("|", "\\|")


def block(lines: Iterable[str]) -> str:
    """Returns cleaned lines in a monospaced block."""
    safe = [_line(line) for line in lines]
    fence = "`" * max(3, 1 + max((len(run) for line in safe for run in re.findall("`+", line)), default=0))
    return "\n".join([f"{fence}text", *safe, fence])


def _line(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + clean(line)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Returns a table; cells are Markdown already, ``right`` holds the indices of right-aligned columns."""
    numbers = set(right)
    rule = ["---:" if place in numbers else "---" for place in range(len(heads))]
    return "\n".join(_row(cells) for cells in (heads, rule, *rows))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Returns a list of names and values; values are Markdown already. Omits rows with an empty value."""
    return "\n".join(f"- {name}: {value}" for name, value in rows if value)


def bars(shares: Mapping[str, float]) -> list[str]:
    """Returns a line for each share of 0..1, in the given order: name, bar, percent."""
    lines = []
    for name, share in shares.items():
        filled, _ = cells_for([max(0.0, share), max(0.0, 1.0 - share)], BAR_WIDTH)
        lines.append(f"{clean(name):<10}{'█' * filled}{'░' * (BAR_WIDTH - filled)} {100 * share:5.1f} %")
    return lines
