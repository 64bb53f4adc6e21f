"""Markdown from values. Whatever was not written here goes into a code span, where nothing of it acts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autotune.wording.numbers import cells_for
from autotune.wording.text import clean

LONGEST = 300
"""Characters of a foreign text; the rest is cut."""

BAR_WIDTH = 40


def code(value: object) -> str:
    """A code span no content can leave; ``-`` for nothing."""
    text = clean(value)
    if not text:
        return "-"
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(lines: Iterable[str]) -> str:
    """Lines as they are, in a monospaced block; each is cleaned."""
    safe = [_line(line) for line in lines]
    fence = "`" * max(3, 1 + max((len(run) for line in safe for run in re.findall("`+", line)), default=0))
    return "\n".join([f"{fence}text", *safe, fence])


def _line(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + clean(line)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table; cells are Markdown already, ``right`` names the columns of numbers."""
    numbers = set(right)
    rule = ["---:" if place in numbers else "---" for place in range(len(heads))]
    return "\n".join(_row(cells) for cells in (heads, rule, *rows))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A list of name and value; values are Markdown already, empty ones are left out."""
    return "\n".join(f"- {name}: {value}" for name, value in rows if value)


def bars(shares: Mapping[str, float]) -> list[str]:
    """A line for each share: name, bar, percent; in the given order."""
    lines = []
    for name, share in shares.items():
        filled, _ = cells_for([max(0.0, share), max(0.0, 1.0 - share)], BAR_WIDTH)
        lines.append(f"{clean(name):<10}{'█' * filled}{'░' * (BAR_WIDTH - filled)} {100 * share:5.1f} %")
    return lines


def sections(parts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """``## title`` and paragraphs for each part that has any."""
    made = []
    for title, paragraphs in parts:
        body = [text for text in paragraphs if text]
        if body:
            made.append("\n\n".join([f"## {title}", *body]))
    return "\n\n".join(made)
