"""Entry of every child: ``python /abs/trainer/child/start.py COMMAND --directory DIR``.

Started by file path, so that the user's interpreter need not import our package. The package around this file is loaded
under a private name, so that it and a ``trainer`` or ``rewards`` of the user do not hide each other.

Commands: ``trial`` runs the spec in DIR; ``probe``, ``probe_speed``, ``prepare`` and ``describe`` answer one question
each. They write ``result.json`` to DIR. ``worker`` runs the trials named by messages in DIR, one after the other.
``preload`` imports the modules of the trial in DIR, and forks itself for this trial and others with the same imports.
Exit code 0 means OK, 1 a failure that ``result.json`` explains.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import List, Sequence

PACKAGE = "_autotune_trainer"
COMMANDS = {
    "trial": "worker",
    "worker": "warm",
    "preload": "preload",
    "probe": "probe",
    "prepare": "prepare",
    "describe": "describe",
    "probe_speed": "probe_speed",
}
QUESTIONS = ("probe", "prepare", "describe", "probe_speed")


def clean_path(entries: Sequence[str], script_folder: str, cwd: str) -> List[str]:
    """Returns ``sys.path`` without the script's folder and the working directory, in any spelling."""
    unwanted = {os.path.realpath(script_folder), os.path.realpath(cwd)}
    return [entry for entry in entries if entry and os.path.realpath(entry) not in unwanted]


def load_package() -> ModuleType:
    """Loads this folder as the package ``_autotune_trainer``."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError("cannot load %s" % folder)
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return package


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    if len(arguments) != 3 or arguments[0] not in COMMANDS or arguments[1] != "--directory":
        sys.stderr.write("usage: start.py %s --directory DIR\n" % "|".join(COMMANDS))
        return 2
    # A hang is asked for its stacks before it is killed.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    sys.path[:] = clean_path(sys.path, str(Path(__file__).resolve().parent), os.getcwd())
    load_package()
    if arguments[0] in QUESTIONS:
        importlib.import_module("%s.began" % PACKAGE).end_with_parent()
    command = importlib.import_module("%s.%s" % (PACKAGE, COMMANDS[arguments[0]]))
    return 0 if command.main(Path(arguments[2]).resolve()).ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
