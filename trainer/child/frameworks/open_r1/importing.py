"""Imports of an Open-R1 trial, and the environment that must be set before them.

A process with the imports of one trial can be forked for every other with the same ``key``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Dict

from ...checks import is_within
from ...contract import TrialSpec
from ...failures import IllegalSettingError
from ...user_environment import import_key, put_trial_environment

CHECKOUT = "AUTOTUNE_OPENR1"
"""Environment variable with the folder of the user's Open-R1 checkout."""
SCRIPT = Path("src") / "open_r1" / "grpo.py"
VERSIONS = ((0, 18), (0, 19))
"""TRL versions whose methods the meter knows: from the first, below the second."""
TRAINER = "trl.trainer.grpo_trainer"
OTHERS = ("open_r1.configs", "open_r1.rewards", "open_r1.utils.callbacks")
"""Modules of the checkout that ``grpo.py`` imports."""


def script() -> Path:
    """Returns ``grpo.py`` of the checkout. Raises IllegalSettingError if the folder is not an Open-R1 checkout."""
    checkout = os.environ.get(CHECKOUT, "")
    path = Path(checkout) / SCRIPT
    if not checkout or not path.is_file():
        named = checkout or "nothing"
        raise IllegalSettingError("%s is no checkout of Open-R1: there is no %s in it" % (named, SCRIPT))
    return path.absolute()


def key(spec: TrialSpec) -> str:
    """Returns the key of a trial's imports: specs with equal keys import the same modules."""
    return import_key(spec, os.environ.get(CHECKOUT))


def before_import(spec: TrialSpec) -> None:
    """Sets the environment that torch, TRL and the hub's client read at import.

    Raises IllegalSettingError if the user's variables cannot be set, or the kind of trial is not supported.
    """
    put_trial_environment(spec)
    if spec.device == "cpu" and spec.settings.get("deepspeed"):
        raise IllegalSettingError("an Open-R1 trial shards with DeepSpeed on GPUs only; set zero_stage 0")


def bring_in() -> Dict[str, str]:
    """Imports the packages that affect the figures and returns their versions.

    Raises:
        IllegalSettingError: a TRL version other than Open-R1's: figures of an unknown trainer would be wrong.
    """
    source = str(script().parent.parent)
    if source not in sys.path:
        sys.path.insert(0, source)
    modules = {name: importlib.import_module(name) for name in ("accelerate", "torch", "transformers", "trl")}
    version = str(modules["trl"].__version__)
    if not is_within(version, VERSIONS):
        raise IllegalSettingError("TRL %s is installed; Open-R1 trains with TRL 0.18" % version)
    for name in (TRAINER, *OTHERS):
        importlib.import_module(name)
    return {name: str(module.__version__) for name, module in modules.items()}


def bring_in_ahead(spec: TrialSpec) -> None:
    """Imports all modules that a trial with this key imports.

    Raises:
        IllegalSettingError, ImportError: the trial would fail with this.
    """
    before_import(spec)
    bring_in()
    for name in ("drive", "run"):
        importlib.import_module("." + name, __package__)
