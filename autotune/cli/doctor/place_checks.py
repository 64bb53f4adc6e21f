"""Checks where data is stored: home folder, disk, database."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.cli.doctor.findings import Finding, ok, problem, warning
from autotune.errors import AutotuneError
from autotune.machine.surroundings import existing
from autotune.settings import DATABASE_VARIABLE, HOME_VARIABLE, Settings
from autotune.wording.numbers import format_size

DISK_NEEDED = 1 << 30
DISK_WANTED = 10 << 30
"""Free bytes on the home folder's disk: below the first no study starts, below the second models may not fit."""

ANOTHER_HOME = f"export {HOME_VARIABLE}=$HOME/autotune"


def check_folders(names: Sequence[str], folder: Path) -> list[Finding]:
    """Warns about each of the user's folders that Python ignores, because a package of the training environment has the
    same name."""
    hidden = [name for name in names if (folder / name).is_dir() and not (folder / name / "__init__.py").exists()]
    text = "the training environment has a package of the name {0}: Python takes it before your folder {0}"
    mends = (f"touch {shlex.quote(str(folder / name / '__init__.py'))}" for name in hidden)
    return [warning("folders", text.format(n), mend) for n, mend in zip(hidden, mends, strict=True)]


def check_home(settings: Settings) -> Finding:
    """Checks that the home folder exists or can be created, is writable, and supports file locks."""
    from autotune.store import check_place

    try:
        settings.home.prepare()
        if settings.own_database:
            check_place(settings.home.database)
    except AutotuneError as error:
        return problem("home", str(error), ANOTHER_HOME)
    return ok("home", str(settings.home.root))


def check_disk(root: Path, usage: Callable[[Path], int] | None = None) -> Finding:
    """Checks the free space of the disk of the home folder ``root``; ``usage`` returns free bytes."""
    place = existing(root)
    try:
        free = (usage or (lambda path: shutil.disk_usage(path).free))(place)
    except OSError as error:
        return warning("disk", f"free space of {place} is not known ({error.strerror or error})")
    move = f"export {HOME_VARIABLE}=/a/larger/disk/autotune"
    text = f"{format_size(free)} free in {place}"
    if free < DISK_NEEDED:
        return problem("disk", f"{text}; a study needs {format_size(DISK_NEEDED)}", move)
    if free < DISK_WANTED:
        return warning("disk", f"{text}; models may not fit", move)
    return ok("disk", text)


def check_database(settings: Settings, studies: Callable[[], int], schema: str = "") -> Finding:
    """Checks that the database opens and can be read; shows its address without secrets."""
    if settings.database_is_absent:
        return ok("database", f"none yet; `autotune start` makes {settings.database_shown}")
    try:
        number = studies()
    except AutotuneError as error:
        return problem("database", str(error), _command(settings, str(error)))
    words = "1 study" if number == 1 else f"{number} studies"
    version = f", schema {schema}" if schema else ""
    return ok("database", f"{words} in {settings.database_shown}{version}")


def _command(settings: Settings, problem: str) -> str:
    if "upgrade autotune" in problem:
        return f"{shlex.quote(sys.executable)} -m pip install --upgrade /path/to/a/newer/checkout"
    if not settings.own_database:
        return f"unset {DATABASE_VARIABLE}"
    if settings.home.database.is_file():
        file = shlex.quote(str(settings.home.database))
        return f"mv {file} {file}.broken"
    return ANOTHER_HOME
