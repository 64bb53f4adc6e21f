"""Imports of an ms-swift trial, and the environment that must be set before them.

A process with the imports of one trial can be forked for every other with the same ``key``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Tuple

from ...contract import TrialSpec
from ...user_environment import put_trial_environment

MODULES = ("swift.pipelines", "swift.rlhf_trainers.grpo_trainer")
OURS = ("drive", "inputs", "seams")


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
    """Imports all that a trial of this key imports.

    Raises:
        IllegalSettingError, ImportError: the trial would fail with this.
    """
    before_import(spec)
    bring_in()
