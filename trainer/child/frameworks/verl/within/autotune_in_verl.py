"""Loads the trial's own package in a process of verl, under the name that the trial uses."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

PACKAGE = "_autotune_trainer"
START = Path(__file__).resolve().parents[3] / "start.py"


def ours(name: str) -> Any:
    """Returns module ``name`` of the package ``frameworks.verl``."""
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location("_autotune_start", START)
        if spec is None or spec.loader is None:
            raise ImportError("cannot load %s" % START)
        start = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(start)
        start.load_package()
    return importlib.import_module("%s.frameworks.verl.%s" % (PACKAGE, name))
