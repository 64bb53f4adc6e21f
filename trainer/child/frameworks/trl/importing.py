"""Imports of a TRL trial, and the environment that must be set before them.

A process with the imports of one trial can be forked for every other with the same ``key``.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Tuple

from ...checks import refusing
from ...contract import TrialSpec
from ...user_environment import import_key, put_trial_environment
from ..hf_trainer.compiling import compiles
from . import cpu_deepspeed, engine

LATER = ("vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker", "vllm.v1.worker.cpu_model_runner")
"""Modules that a trial with vLLM on a CPU imports when it builds its engine."""
REWARDS = {"reasoning_gym": ("reasoning_gym",)}
"""Kind of reward -> modules that it imports in the trial's own process."""


def uses_vllm(spec: TrialSpec) -> bool:
    """Tells whether completions come from vLLM, in this process or from its server."""
    return bool(spec.settings.get("use_vllm"))


def on_cpu(spec: TrialSpec) -> bool:
    """Tells whether DeepSpeed trains without a GPU; ``use_cpu`` must then be unset, because it disables DeepSpeed."""
    return spec.device == "cpu" and bool(spec.settings.get("deepspeed"))


def key(spec: TrialSpec) -> str:
    """Returns the key of a trial's imports: specs with equal keys import the same modules."""
    return import_key(spec, compiles(spec), _rewards(spec))


def before_import(spec: TrialSpec) -> None:
    """Sets the environment that torch, TRL and vLLM read at import.

    Raises IllegalSettingError if the user's variables cannot be set, or without a rank in the environment.
    """
    put_trial_environment(spec)
    engine.before_import(spec.device, compiles=compiles(spec))
    if on_cpu(spec):
        with refusing():
            cpu_deepspeed.before_import()


def after_import(spec: TrialSpec) -> None:
    """Patches the imported packages; call it before anything is built.

    Raises IllegalSettingError if DeepSpeed is missing, or has unknown internals.
    """
    if on_cpu(spec):
        with refusing():
            cpu_deepspeed.after_import()


def bring_in(spec: TrialSpec) -> Tuple[Any, Any]:
    """Imports TRL and returns (``build``, ``drive``)."""
    if not uses_vllm(spec):
        engine.leave_out(spec.device)
    from . import build, drive

    return build, drive


def bring_in_ahead(spec: TrialSpec) -> None:
    """Imports all modules that a trial with this key imports, including those it imports late.

    Raises:
        IllegalSettingError, ImportError: the trial would fail with this.
    """
    before_import(spec)
    bring_in(spec)
    later = LATER if uses_vllm(spec) and spec.device == "cpu" else ()
    for name in (*later, *_model_module(spec), *_rewards(spec)):
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112  (the trial itself says what is wrong, if it needs it)
            continue


def _rewards(spec: TrialSpec) -> Tuple[str, ...]:
    return tuple(sorted({name for reward in spec.rewards for name in REWARDS.get(reward.kind, ())}))


def _model_module(spec: TrialSpec) -> Tuple[str, ...]:
    """Returns the transformers module of the model's class, in a tuple; empty if unknown."""
    try:
        with open(os.path.join(spec.model, "config.json"), encoding="utf-8") as stream:
            kind = str(json.load(stream)["model_type"]).replace("-", "_")
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return ("transformers.models.%s.modeling_%s" % (kind, kind),)
