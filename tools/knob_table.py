"""Writes the table of frameworks and knobs into docs/frameworks.md: ``python -m tools.knob_table [--check]``.

The text between the two markers comes only from the catalogue; ``make check`` fails while the document differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces.frameworks import TITLES
from search_spaces.knobs import FRAMEWORKS, KNOBS, Knob, Reach
from tools.openapi import ROOT, write_or_check

FILE = ROOT / "docs" / "frameworks.md"
BEGIN, END = "<!-- knobs: begin -->", "<!-- knobs: end -->"


class MarkerError(ValueError):
    """A document lacks the markers around the table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the table; returns 0 if it now equals the catalogue's."""
    made = replaced(FILE.read_text(encoding="utf-8"), whole_table(), FILE.name)
    said = f"the table of {FILE.name} is not what the catalogue says; `make knob-table` writes it anew"
    return write_or_check("tools.knob_table", FILE, made, said, arguments)


def whole_table() -> str:
    """Formats the table of every knob, with the framework's own key if the name differs."""
    return _table([(f"`{name}`", *(_cell(knob, f) for f in FRAMEWORKS)) for name, knob in KNOBS.items()])


def word(knob: Knob, framework: str) -> str:
    """Returns ``yes`` for a setting of that name, ``renamed`` for another name, ``outside`` for a patch, or ``no``."""
    setting = knob.frameworks.get(framework)
    if setting is None:
        return "no"
    if setting.reach is Reach.SEAM:
        return "outside"
    return "yes" if setting.reach is Reach.NATIVE and setting.key == knob.name else "renamed"


def _cell(knob: Knob, framework: str) -> str:
    said, setting = word(knob, framework), knob.frameworks.get(framework)
    key = "" if setting is None else setting.key.replace("|", "\\|")
    return said if said in ("yes", "no") else f"{said}: `{key}`"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = ("knob", *(TITLES[f] for f in FRAMEWORKS))
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replaced(text: str, table: str, name: str) -> str:
    """Returns ``text`` with ``table`` between its markers.

    Args:
        text: text of a document.
        table: the table, without a final newline.
        name: name of the document, for the message.

    Raises:
        MarkerError: the document does not have each marker once, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise MarkerError(f"{name} needs {BEGIN} and, behind it, {END}, each once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    raise SystemExit(main())
