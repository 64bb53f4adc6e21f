"""Fails if a file needs syntax newer than Python 3.10: ``python -m tools.old_syntax FOLDER``.

Supplements ruff's own check for that version: each of the two misses some syntax.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tools.environments import say

OLDEST = (3, 10)


def problems(folder: Path) -> list[str]:
    """Returns a line for each file below ``folder`` that Python 3.10 cannot parse."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        try:
            ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST)
        except SyntaxError as error:
            found.append(f"{path}:{error.lineno}: not Python {OLDEST[0]}.{OLDEST[1]} syntax: {error.msg}")
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]))
    for line in lines:
        say(line)
    sys.exit(bool(lines))
