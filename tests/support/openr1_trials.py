"""Runs real Open-R1 trials of a tiny model for the tests, in Open-R1's own environment and checkout."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import trl_trials
from tests.support.trl_trials import QUIET, Ran, run_child, told_of
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks import open_r1

PYTHON, CHECKOUT = "AUTOTUNE_OPENR1_PYTHON", "AUTOTUNE_OPENR1"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""The tiny model has none, and Open-R1 asks in conversations."""
KNOBS: dict[str, Any] = {
    "micro_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "num_generations": 4,
    "gradient_checkpointing": False,
    "precision": "fp32",
    "master_weights": "fp32",
    "attn_implementation": "sdpa",
    "optimizer": "adamw_torch",
    "rollout_engine": "transformers",
}


def environment() -> tuple[str, str]:
    """(Interpreter, checkout) of Open-R1; the test is skipped where they are not named."""
    python, checkout = os.environ.get(PYTHON, ""), os.environ.get(CHECKOUT, "")
    if not python or not checkout:
        pytest.skip(f"{PYTHON} and {CHECKOUT} name no environment and checkout of Open-R1 (make env-openr1)")
    return python, checkout


def build_tiny(folder: Path, python: str) -> Path:
    """A tiny random model and prompts in ``folder``, by Open-R1's transformers: newer ones save another tokenizer."""
    return trl_trials.build_tiny(folder, python=python)


def tiny_spec(
    tiny: Path, rewards: tuple[RewardSpec, ...], checkout: str, protocol: Protocol = QUIET, **changes: Any
) -> TrialSpec:
    """``trl_trials.told_of``; ``knobs`` change the configuration, the rest the spec."""
    passthrough = {"chat_template": TEMPLATE, "beta": 0.04, **changes.pop("passthrough", {})}
    spec = open_r1.render(
        configuration={**KNOBS, **changes.pop("knobs", {})},
        passthrough=passthrough,
        checkout=checkout,
        **told_of(tiny, rewards, protocol),
    )
    return replace(spec, **changes)


def run_trial(directory: Path, spec: TrialSpec, python: str) -> Ran:
    """One trial in a process of its own, to its end."""
    return run_child([python], directory, spec, dict(spec.environment))[0]
