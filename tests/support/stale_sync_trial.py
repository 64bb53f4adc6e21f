"""Runs one trial whose rollout engine never gets the trainer's new weights. Run by the training interpreter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from numerics_checks import package

if __name__ == "__main__":
    sys.path.pop(0)
    child = package()
    engine = importlib.import_module(f"{child}.frameworks.trl.engine")
    engine.sync_by_reload = lambda _: None
    worker = importlib.import_module(f"{child}.worker")
    paths = importlib.import_module(f"{child}.contract").RunPaths(Path(sys.argv[1]))
    sys.exit(0 if worker.run(paths, worker.ResultClaim(paths)).ok else 1)
