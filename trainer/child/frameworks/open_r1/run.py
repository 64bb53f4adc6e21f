"""Runs an Open-R1 trial: the ``grpo.py`` of the user's checkout, with its trainer measured from outside."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ...checks import MEASURING, SET_UP, check_rows, prompt_count, prompts_of, refusing, says_why, updates_per_cycle
from ...contract import StartupPart, TrialSpec
from ...cycles import CyclePlan
from ...failures import IllegalSettingError, MeterError
from ...rewards import close_rewards, guarded, load_rewards
from ...trial import TrialContext
from ...user_environment import ENVIRONMENT_KEY
from ..hf_trainer.around import replace
from ..hf_trainer.weight_group import client_at_port
from . import importing

KIND = "open_r1"
"""Kind of a reward that Open-R1's registry has."""
SYSTEM = "system_prompt"
COLUMN = "prompt"


def write(spec: TrialSpec, plan: CyclePlan, folder: Path) -> Tuple[Path, int]:
    """Writes the recipe and the prompts; returns (the recipe, optimizer updates in one cycle).

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
    """Returns the settings for measurement; the output folder is new, as Open-R1 resumes from a checkpoint."""
    return {
        **MEASURING,
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
        "log_completions": False,
        "do_eval": False,
        "push_to_hub": False,
        "seed": spec.seed,
        "use_cpu": spec.device == "cpu",
    }


def write_prompts(source: str, folder: Path, rows: int, system: Any) -> Any:
    """Writes ``rows`` rows of the prompts, repeated as needed; returns their common system prompt.

    One epoch then contains the whole trial. Open-R1 makes a conversation of each text, with one ``system_prompt``.

    Args:
        system: the recipe's own; prompts with another are refused.

    Raises:
        IllegalSettingError: a prompt is not such a conversation, or there are no prompts.
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


class FinishedError(Exception):
    """Ends ``grpo.py`` after the protocol; its work after training is not part of a trial."""


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is completed. Raises the error of a failure (``failures.classify``)."""
    spec = trial.spec
    script = importing.script()
    importing.before_import(spec)
    with trial.startup(StartupPart.IMPORT):
        trial.facts["versions"] = importing.bring_in()
    datasets: Any = importlib.import_module("datasets")
    datasets.config.HF_DATASETS_CACHE = trial.paths.scratch / "datasets"  # its files of the prompts are the trial's
    trial.open_meter()
    path, updates = write(spec, CyclePlan(spec.protocol), trial.paths.scratch)
    rewards: List[Any] = []
    with contextlib.ExitStack() as loading:
        loading.enter_context(trial.startup(StartupPart.LOAD))
        install_rewards(trial, rewards)
        install_trainer(trial, updates, loading)
        try:
            run_script(script, path)
        except FinishedError:
            return
        except SET_UP as error:
            if trial.part is not StartupPart.LOAD or says_why(error):
                raise
            raise IllegalSettingError(str(error)) from error
        finally:
            trial.facts.update(close_rewards(rewards))
    raise MeterError("grpo.py ended without having trained")


def run_script(script: Path, path: Path) -> None:
    """Runs ``grpo.py --config PATH``. Raises IllegalSettingError if it refuses the recipe during set-up."""
    before = list(sys.argv)
    sys.argv = [str(script), "--config", str(path)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        raise IllegalSettingError("grpo.py refuses the recipe (exit %s); the log says why" % error.code) from error
    finally:
        sys.argv = before


def install_rewards(trial: TrialContext, loaded: List[Any]) -> None:
    """Patches Open-R1's lookup of rewards to return the study's, each wrapped by ``guarded``.

    Raises RewardFailedError for a reward that cannot be loaded.
    """
    from open_r1 import rewards

    registry, specs = rewards.get_reward_funcs, trial.spec.rewards

    def get_reward_funcs(script_args: Any) -> List[Any]:
        found = []
        for reward in specs:
            if reward.kind != KIND:
                loaded.extend(load_rewards([reward]))
                found.append(guarded(loaded[-1]))
                continue
            one = copy.copy(script_args)
            one.reward_funcs = [reward.name]
            try:
                found += [guarded(each) for each in registry(one)]
            except KeyError:
                raise IllegalSettingError("Open-R1's registry has no reward %s" % reward.name) from None
        return found

    rewards.get_reward_funcs = get_reward_funcs


def install_trainer(trial: TrialContext, updates: int, loading: contextlib.ExitStack) -> None:
    """Patches the trainer class that ``grpo.py`` imports, so that it measures cycles."""
    from .drive import OpenR1Loop

    def build(own: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        loading.close()
        config = kwargs["args"]
        check_rows(
            config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size, trial.spec
        )
        trial.note("script", {"config": type(config).__module__})
        with trial.startup(StartupPart.ENGINE), refusing():
            own(trainer, *args, **kwargs)
        trial.guard_memory()

    def train(own: Any, trainer: Any, *_: Any, **__: Any) -> Any:
        OpenR1Loop(trial, trainer, updates).drive(functools.partial(own, trainer))
        raise FinishedError

    module: Any = sys.modules[importing.TRAINER]
    module.VLLMClient = client_at_port(module.VLLMClient)
    replace(module.GRPOTrainer, "__init__", build)
    replace(module.GRPOTrainer, "train", train)
