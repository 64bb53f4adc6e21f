"""Plain TRL, step by step: run by the training interpreter, with nothing of the tuner.

``PYTHON benchmarks/cycles/plain_steps.py FOLDER``: ``plain.json`` in FOLDER names model, prompts, reward and the
arguments of ``GRPOConfig``. ``steps.json`` gets the seconds from each step's end to the next: all a user waits for.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Steps(TrainerCallback):
    """Keeps the seconds of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step's begin."""
        self._last = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """One step's end is the next one's begin."""
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


def reward_of(path: str) -> Any:
    """The function ``score`` of a file."""
    spec = importlib.util.spec_from_file_location("reward", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.score


def main(folder: Path) -> None:
    """Train."""
    settings = json.loads((folder / "plain.json").read_text())
    prompts = [json.loads(line) for line in Path(settings["prompts"]).read_text().splitlines()]
    chosen = [prompts[number % len(prompts)] for number in range(settings["rows"])]
    given = {
        **settings["settings"],
        "output_dir": str(folder / "output"),
        "model_init_kwargs": settings["model_settings"],
    }
    steps = Steps()
    GRPOTrainer(
        model=settings["model"],
        reward_funcs=reward_of(settings["reward"]),
        args=GRPOConfig(**given),
        train_dataset=Dataset.from_list(chosen),
        callbacks=[steps],
    ).train()
    (folder / "steps.json").write_text(json.dumps(steps.seconds))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
