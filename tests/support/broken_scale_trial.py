"""Runs one trial with torchao's FP8 broken: a scale of the weights off by 4. Run by the training interpreter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from numerics_checks import broken, package

if __name__ == "__main__":
    sys.path.pop(0)
    child = package()
    linear = importlib.import_module("torchao.float8.float8_linear")
    _, linear.hp_tensor_to_float8_dynamic = broken(4.0, "WEIGHT", saturate=True)
    worker = importlib.import_module(f"{child}.worker")
    paths = importlib.import_module(f"{child}.contract").RunPaths(Path(sys.argv[1]))
    sys.exit(0 if worker.run(paths, worker.ResultClaim(paths)).ok else 1)
