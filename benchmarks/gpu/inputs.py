"""Model, prompts and reward of a run, made once in its folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

from autotune.domain import RewardSpec
from autotune.errors import MachineError
from autotune.machine.clock import SystemClock
from autotune.ports import StopToken
from autotune.running.command import BoundedCommand, run_command
from autotune.specification.user_input import sha256_of
from benchmarks.gpu.architectures import Architecture

SCRIPT = Path(__file__).with_name("random_model.py")
MAKING_S = 480.0
PROMPTS = 256
SHORTEST, LONGEST = 64, 256
"""Bytes of a prompt, which are its tokens: the tokenizer has no merges."""
REWARD = '''"""Rewards that differ within a group, whatever a random model says: how much of it is vowels."""


def score(prompts, completions, **columns):
    """One number for each completion."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''


def model(architecture: Architecture, python: str, folder: Path, tag: str, stop: StopToken) -> Path:
    """The folder of the random model, made by the training interpreter if it is not there.

    Raises:
        MachineError: it could not be made.
    """
    made = folder / f"model-{architecture.name}"
    if made.is_dir():
        return made
    recipe = folder / f"{architecture.name}.json"
    recipe.write_text(json.dumps(architecture.recipe()), encoding="utf-8")
    command = BoundedCommand((python, str(SCRIPT), str(recipe), str(made)), folder, tag, folder / "making", MAKING_S)
    ended = run_command(command, lambda _: False, stop, clock=SystemClock())
    if not made.is_dir():
        said = ended.why or (ended.log_tail.strip().splitlines() or ["it said nothing"])[-1]
        raise MachineError(f"{python} could not make a random {architecture.name}: {said}")
    return made


def prompts(folder: Path, longest: int, seed: int, shortest: int = SHORTEST) -> Path:
    """A file of prompts of many lengths, from ``shortest`` up to ``longest`` tokens; the same for the same seed."""
    path = folder / "prompts.jsonl"
    chance = random.Random(seed)  # noqa: S311  (repeatable on purpose)
    lines = []
    for number in range(PROMPTS):
        size = longest if number == 0 else chance.randint(min(shortest, longest), longest)
        text = " ".join(str(chance.randint(1, 999)) for _ in range(size))
        lines.append(json.dumps({"prompt": ("Add these numbers: " + text)[:size]}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def reward(folder: Path) -> RewardSpec:
    """The reward, in a file of its own."""
    path = folder / "reward.py"
    path.write_text(REWARD, encoding="utf-8")
    return RewardSpec("file", "score", str(path), sha256=sha256_of(str(path)))
