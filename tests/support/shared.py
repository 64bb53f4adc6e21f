"""What all processes of one run of the tests have in common, though each worker is a process of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

VARIABLE = "SHARED_BY_TESTS"


def begin() -> Callable[[], None]:
    """Make the folder they share, for this process and those it starts; returns what removes it."""
    folder = tempfile.mkdtemp(prefix="autotune-tests-")
    os.environ[VARIABLE] = folder
    return lambda: shutil.rmtree(folder, ignore_errors=True)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that ``make`` fills for whichever process asks first; nobody may change it afterwards."""
    if VARIABLE not in os.environ:
        atexit.register(begin())
    folder = Path(os.environ[VARIABLE]) / name
    whole = folder.with_name(f"{name}.whole")
    with FileLock(f"{folder}.lock"):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            whole.touch()
    return folder
