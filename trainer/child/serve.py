"""Entry of a trial's rollout server: ``python /abs/trainer/child/serve.py FRAMEWORK DIRECTORY WORD...``.

Runs the framework's own server function, with WORD... as its command line, for the trial in DIRECTORY. Two patches:
each completion gets its own length, and weights are transferred on this machine's loopback. The patches are applied
at the top level, because each process that the server or vLLM spawns imports this file again, as ``__mp_main__``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent
SPAWNED = "__mp_main__"
"""Name of this file in a process that ``multiprocessing`` has spawned."""


def start_file() -> ModuleType:
    """Loads ``start.py`` from this folder, which loads the package."""
    spec = importlib.util.spec_from_file_location("_autotune_start", FOLDER / "start.py")
    if spec is None or spec.loader is None:
        raise ImportError("cannot load start.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(framework: str, directory: str) -> ModuleType:
    """Loads the framework's server and patches it, after setting the user's own variables.

    Args:
        framework: folder below ``frameworks``.
        directory: folder of the trial; empty in a spawned process, which inherits the variables.
    """
    start = start_file()
    sys.path[:] = start.clean_path(sys.path, str(FOLDER), os.getcwd())
    start.load_package()
    if directory:
        contract = importlib.import_module("%s.contract" % start.PACKAGE)
        user = importlib.import_module("%s.user_environment" % start.PACKAGE)
        user.put_environment(contract.read_spec(contract.RunPaths(Path(directory)).config).passthrough)
    serving = importlib.import_module("%s.frameworks.%s.serving" % (start.PACKAGE, framework))
    serving.install()
    return serving


if __name__ == SPAWNED:
    prepare(sys.argv[1], "")
if __name__ == "__main__":
    prepare(sys.argv[1], sys.argv[2]).main(Path(sys.argv[2]), sys.argv[3:])
