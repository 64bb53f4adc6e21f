"""Write the table of frameworks and knobs into docs/frameworks.md: ``python -m tools.knob_table [--check]``.

The text between the two markers comes from the catalogue alone; ``make check`` fails while the document differs.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from search_spaces.frameworks import TITLES
from search_spaces.knobs import FRAMEWORKS, KNOBS, Knob, Reach
from tools.environments import say

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- knobs: begin -->", "<!-- knobs: end -->"
SHOWN_LINES = 40


class MarkerError(ValueError):
    """A document has no place for the table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the tables; returns 0 if they now equal the catalogue's."""
    parser = argparse.ArgumentParser(prog="python -m tools.knob_table")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a document would change")
    check = parser.parse_args(arguments).check
    stale = [path for path, table in tables().items() if not _is_current(path, table, check=check)]
    if stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        say(f"the tables of {names} are not what the catalogue says; `make knob-table` writes them anew")
    return 1 if stale else 0


def tables() -> dict[Path, str]:
    """Returns document -> text between its markers."""
    return {ROOT / "docs" / "frameworks.md": whole_table()}


def whole_table() -> str:
    """Formats the table of every knob, with the framework's own key if the name differs."""
    return _table([(f"`{name}`", *(_cell(knob, f) for f in FRAMEWORKS)) for name, knob in KNOBS.items()])


def word(knob: Knob, framework: str) -> str:
    """Returns ``yes`` for a setting, ``renamed`` for one with another name, ``outside`` for a seam, or ``no``."""
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
        table: lines without an end.
        name: name of the document, for the message.

    Raises:
        MarkerError: the document does not have each marker once, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise MarkerError(f"{name} needs {BEGIN} and, behind it, {END}, each once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def _is_current(path: Path, table: str, *, check: bool) -> bool:
    """Writes or checks one document; returns whether it now holds ``table``. A check shows the differences."""
    there = path.read_text(encoding="utf-8")
    made = replaced(there, table, path.name)
    if not check:
        path.write_text(made, encoding="utf-8")
        return True
    changed = list(difflib.unified_diff(there.splitlines(), made.splitlines(), path.name, "the catalogue", lineterm=""))
    for line in changed[:SHOWN_LINES]:
        say(line)
    return not changed


if __name__ == "__main__":
    raise SystemExit(main())
