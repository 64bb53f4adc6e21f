"""Commands and paths in a form that a person can paste into the same shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from autotune.errors import UsageError
from autotune.settings import Settings, read_settings


def command_line(words: str, settings: Settings) -> str:
    """Returns ``autotune WORDS`` to paste: with its path if not on PATH, ``--home`` and ``--database`` if needed."""
    called, program = Path(sys.argv[0]), "autotune"
    if shutil.which(program) is None and called.name == program and called.is_file():
        program = shlex.quote(short_path(called))
    return f"{program} {words}{_place(settings)}"


def _place(settings: Settings) -> str:
    """Returns the options without which a command would use another home folder or database; omits passwords."""
    home = f" --home {shlex.quote(short_path(settings.home.root))}"
    try:
        usual = read_settings()
    except UsageError:  # none is known
        return home
    named = settings.database not in (usual.database, str(settings.home.database))
    return home * (settings.home.root != usual.home.root) + f" --database {shlex.quote(settings.database)}" * named


def short_path(path: Path) -> str:
    """Returns a path relative to the working directory if it is inside, else absolute."""
    absolute = Path(os.path.abspath(path))
    try:
        return str(absolute.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(absolute)
