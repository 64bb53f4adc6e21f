"""Labels on the left, wrapped text on the right: the form of every screen that is not a table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from autotune.wording.text import clean

LABEL_WIDTH = 12


class LabelGrid:
    """Rows of (label, text); as wide as the console, nothing is cut off."""

    def __init__(self) -> None:
        self.table = Table.grid(padding=0, expand=True)
        self.table.add_column(width=LABEL_WIDTH, no_wrap=True, style="dim")
        self.table.add_column(overflow="fold", ratio=1)

    def add(self, label: str, text: str | Text, style: str = "") -> None:
        """Adds a row; plain text is cleaned, ``Text`` must be clean."""
        self.table.add_row(label, Text(clean(text), style) if isinstance(text, str) else text)

    def gap(self) -> None:
        """Adds an empty line."""
        self.table.add_row("", "")
