"""Commands and paths as a person can paste them back into the shell they came from."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from autotune.errors import UsageError
from autotune.settings import Settings, read_settings


def command_line(words: str, settings: Settings) -> str:
    """Returns ``autotune WORDS`` as it works here: by path if not on PATH, with a home named by an option."""
    called = Path(sys.argv[0])
    program = "autotune"
    if shutil.which(program) is None and called.name == program and called.is_file():
        program = shlex.quote(short_path(called))
    return f"{program} {words}" + (
        f" --home {shlex.quote(short_path(settings.home.root))}" if _elsewhere(settings) else ""
    )


def _elsewhere(settings: Settings) -> bool:
    """Tells whether a home is not the one that a command without the option would take."""
    try:
        return settings.home.root != read_settings().home.root
    except UsageError:  # none is known
        return True


def short_path(path: Path) -> str:
    """Returns a path relative to the working directory if it lies inside, else absolute."""
    absolute = Path(os.path.abspath(path))
    try:
        return str(absolute.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(absolute)
