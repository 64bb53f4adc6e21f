"""What an ms-swift trial imports, and what has to be in the environment by then.

A process that has done this for one trial can be forked for every other with the same ``key``.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Tuple

from ...contract import TrialSpec
from ...user_environment import ENVIRONMENT_KEY, meet_on_loopback, put_environment

MODULES = ("swift.pipelines", "swift.rlhf_trainers.grpo_trainer")
OURS = ("loop", "prompts", "scoring", "seams")


def key(spec: TrialSpec) -> str:
    """Two specs with the same are the same until everything is imported."""
    environment = spec.passthrough.get(ENVIRONMENT_KEY) or {}
    told = (spec.framework, spec.device, bool(spec.settings.get("use_vllm")), environment)
    return json.dumps(told, sort_keys=True, default=str)


def before_import(spec: TrialSpec) -> None:
    """The environment that torch, transformers and ms-swift read when they are imported.

    Raises:
        IllegalSettingError: the user's own variables cannot be set.
    """
    put_environment(spec.passthrough)
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder or a cached commit needs no hub; one that is down must not matter
    if spec.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        meet_on_loopback()


def bring_in() -> Tuple[Any, Any]:
    """(The entry point, the trainer's class), and with them everything a trial uses."""
    pipelines, trainers = (importlib.import_module(name) for name in MODULES)
    for name in OURS:
        importlib.import_module("." + name, __package__)
    return pipelines.rlhf_main, trainers.GRPOTrainer


def bring_in_ahead(spec: TrialSpec) -> None:
    """All a trial of this key imports.

    Raises:
        IllegalSettingError, ImportError: the trial would fail with this.
    """
    before_import(spec)
    bring_in()
