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
    """Returns ``autotune WORDS`` as it runs here: with its path if not on PATH, and an option for the home."""
    called = Path(sys.argv[0])
    program = "autotune"
    if shutil.which(program) is None and called.name == program and called.is_file():
        program = shlex.quote(short_path(called))
    return f"{program} {words}" + (
        f" --home {shlex.quote(short_path(settings.home.root))}" if _elsewhere(settings) else ""
    )


def _elsewhere(settings: Settings) -> bool:
    """Tells whether the home differs from that of a command without ``--home``."""
    try:
        return settings.home.root != read_settings().home.root
    except UsageError:  # none is known
        return True


def short_path(path: Path) -> str:
    """Returns a path relative to the working directory if it is inside, else absolute."""
    absolute = Path(os.path.abspath(path))
    try:
        return str(absolute.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(absolute)
