"""Runs an ms-swift trial from spec to the last cycle: the entry point of ``swift rlhf`` with wrapped methods."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import os
import sys
from typing import Any, Callable, Dict, List, Tuple

from ...checks import check_version, prompt_count, refusing, updates_per_cycle
from ...contract import StartupPart, TrialSpec
from ...cycles import CyclePlan
from ...failures import IllegalSettingError, memory_pool
from ...model_facts import model_folder
from ...reward_files import working_in
from ...rewards import close_rewards
from ...trial import TrialContext
from ...user_environment import put_trial_environment
from ..hf_trainer.around import replace
from . import arguments

MODULES = ("swift.pipelines", "swift.rlhf_trainers.grpo_trainer")
OURS = ("drive", "seams")


def before_import(spec: TrialSpec) -> None:
    """Sets the environment that torch, transformers and ms-swift read at import.

    Raises IllegalSettingError if the user's own variables cannot be set.
    """
    put_trial_environment(spec)
    if spec.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def bring_in() -> Tuple[Any, Any]:
    """Imports everything a trial uses, and returns (the entry point, the trainer's class)."""
    pipelines, trainers = (importlib.import_module(name) for name in MODULES)
    for name in OURS:
        importlib.import_module("." + name, __package__)
    return pipelines.rlhf_main, trainers.GRPOTrainer


def bring_in_ahead(spec: TrialSpec) -> None:
    """Imports all modules that a trial with this environment key imports.

    Raises:
        IllegalSettingError, ImportError: the trial would fail with this.
    """
    before_import(spec)
    bring_in()


SUPPORTED = ((4, 6), (4, 7))
"""ms-swift versions whose methods the meter knows: from the first, below the second."""


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is completed. Raises the error of a failure (``failures.classify``)."""
    spec = trial.spec
    before_import(spec)
    with trial.startup(StartupPart.IMPORT):
        check_version("ms-swift", importlib.metadata.version("ms-swift"), SUPPORTED)
        entry, trainer_class = bring_in()
        from . import drive, seams
    trial.facts["versions"] = versions()
    trial.open_meter()
    counts = (spec.settings.get("steps_per_generation"), spec.passthrough.get("num_iterations"))
    updates = updates_per_cycle(spec.settings.get("gradient_accumulation_steps") or 1, *counts)
    part = contextlib.ExitStack()  # it begins and ends in different calls of ms-swift
    part.enter_context(trial.startup(StartupPart.LOAD))
    with refusing():
        seams.install(spec.seams)
    rewards = drive.rewards_of(spec)
    argv = words(trial, rewards, CyclePlan(spec.protocol).longest * updates)

    def build(own: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        part.close()
        with trial.startup(StartupPart.ENGINE):
            own(trainer, *args, **kwargs)

    def train(own: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        trial.guard_memory()
        return drive.SwiftLoop(trial, trainer, updates).drive(functools.partial(own, trainer, *args, **kwargs))

    replace(trainer_class, "__init__", build)
    replace(trainer_class, "train", train)
    try:
        with working_in(arguments.folder(spec)):
            _enter(entry, argv, trial)
    finally:
        trial.facts.update(close_rewards(rewards))


def words(trial: TrialContext, rewards: List[Callable[..., Any]], steps: int) -> List[str]:
    """Builds the command line of ``swift rlhf``; also writes the prompts file and registers the rewards."""
    from . import drive

    spec, scratch = trial.spec, trial.paths.scratch
    os.environ["MODELSCOPE_CACHE"] = str(scratch / "modelscope")  # what it makes of the prompts goes with the trial
    folder = str(model_folder(spec.model, spec.revision or None, offline=True))
    written = drive.write_prompts(spec.prompts, scratch, prompt_count(steps, spec.rows_per_update))
    added = arguments.added(spec, folder, written.raw)
    names = drive.register_rewards(spec, rewards, written.raw)
    argv = arguments.command_line(spec, folder, str(written.path), names, steps, scratch, added)
    trial.facts["arguments"] = added
    trial.note("arguments", {"argv": argv})
    return argv


def versions() -> Dict[str, str]:
    """Returns the versions of the packages that affect the figures."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "ms-swift")}


def _enter(entry: Callable[[List[str]], Any], argv: List[str], trial: TrialContext) -> None:
    """Runs ms-swift's entry point. Raises ``IllegalSettingError`` for settings that it refuses before training."""
    refused = (ValueError, TypeError, ImportError, NotImplementedError, AssertionError, SystemExit)
    own = sys.argv
    sys.argv = ["swift", *argv]  # what looks at it finds the run's own words
    try:
        entry(argv)
    except refused as error:
        if trial.part not in (StartupPart.LOAD, StartupPart.ENGINE) or memory_pool(error) is not None:
            raise
        why = "its parser says why at the end of the log" if isinstance(error, SystemExit) else str(error)
        raise IllegalSettingError(why or type(error).__name__) from error
    finally:
        sys.argv = own
