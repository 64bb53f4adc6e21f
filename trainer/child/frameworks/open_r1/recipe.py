"""Writes the inputs of Open-R1's ``grpo.py``: a recipe and a folder of prompts, in the trial's own folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ...checks import prompt_count, prompts_of, updates_per_cycle
from ...contract import TrialSpec
from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...user_environment import ENVIRONMENT_KEY

KIND = "open_r1"
"""Kind of a reward in Open-R1's registry."""
SYSTEM = "system_prompt"
COLUMN = "prompt"


def write(spec: TrialSpec, plan: CyclePlan, folder: Path) -> Tuple[Path, int]:
    """Writes the recipe and the prompts; returns (the recipe, optimizer updates in a whole cycle).

    Raises IllegalSettingError for a prompt that Open-R1 cannot take, or no prompts.
    """
    keys = {**spec.passthrough, **spec.settings}
    counts = (keys.get("steps_per_generation"), keys.get("num_iterations"))
    updates = updates_per_cycle(keys.get("gradient_accumulation_steps") or 1, *counts)
    rows = prompt_count(plan.longest * updates, spec.rows_per_update)
    own = {key: value for key, value in spec.passthrough.items() if key != ENVIRONMENT_KEY}
    system = write_prompts(spec.prompts, folder / "prompts", rows, own.get(SYSTEM))
    keys = {**own, **spec.settings, **measuring(spec, plan.longest * updates, folder)}
    if system is not None:
        keys[SYSTEM] = system
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(keys, indent=1), encoding="utf-8")  # what is JSON is YAML
    return path, updates


def measuring(spec: TrialSpec, steps: int, folder: Path) -> Dict[str, Any]:
    """Returns the settings of measuring; the output folder is new, as Open-R1 resumes from a checkpoint."""
    return {
        "model_name_or_path": spec.model,
        "model_revision": spec.revision or "main",
        "dataset_name": str(folder / "prompts"),
        "dataset_prompt_column": COLUMN,
        "dataset_train_split": "train",
        "reward_funcs": [
            reward.name if reward.kind == KIND else str(number) for number, reward in enumerate(spec.rewards)
        ],
        "max_prompt_length": spec.max_prompt_length,
        "max_completion_length": spec.max_completion_length,
        "output_dir": str(folder / "output"),
        "max_steps": steps,
        "num_train_epochs": 1,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "log_completions": False,
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
        "do_eval": False,
        "push_to_hub": False,
        "disable_tqdm": True,
        "seed": spec.seed,
        "use_cpu": spec.device == "cpu",
    }


def write_prompts(source: str, folder: Path, rows: int, system: Any) -> Any:
    """Writes ``rows`` rows of the prompts, repeated as needed; returns their common system prompt.

    One epoch then holds the whole trial. Open-R1 makes a conversation of each text, with one ``system_prompt``.

    Args:
        system: the recipe's own; prompts with another are refused.

    Raises:
        IllegalSettingError: a prompt that is no such conversation, or no prompts.
    """
    entries: List[Dict[str, Any]] = []
    for entry, place in prompts_of(source):
        first, text = split(entry["prompt"], place)
        if first is not None and system not in (None, first):
            raise IllegalSettingError("%s: another system prompt than the others'" % place)
        system = system if first is None else first
        entries.append({**entry, COLUMN: text})
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(rows):
            stream.write(json.dumps(entries[number % len(entries)]) + "\n")
    return system


def split(prompt: Any, place: str) -> Tuple[Any, str]:
    """Returns (system prompt or ``None``, the user's text) of a prompt.

    Raises IllegalSettingError for a prompt that is neither text nor such a conversation.
    """
    if isinstance(prompt, str):
        return None, prompt
    messages = [(m.get("role"), m.get("content")) for m in prompt] if isinstance(prompt, list) else []
    if [role for role, _ in messages] == ["user"]:
        return None, str(messages[0][1])
    if [role for role, _ in messages] == ["system", "user"]:
        return str(messages[0][1]), str(messages[1][1])
    raise IllegalSettingError("%s: Open-R1 asks with one message of the user's, behind a system prompt" % place)
