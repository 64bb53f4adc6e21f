"""Runs real Open-R1 trials of a tiny model for the tests, in Open-R1's own environment and checkout."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trl_trials import QUIET, ROOT, START, Ran, end, write_spec
from trainer.child.contract import Protocol, RewardSpec, RunPaths, TrialSpec
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
    run = subprocess.run(
        [python, str(ROOT / "tests" / "tiny_model.py"), str(folder)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return folder


def tiny_spec(
    tiny: Path, rewards: tuple[RewardSpec, ...], checkout: str, protocol: Protocol = QUIET, **changes: Any
) -> TrialSpec:
    """16 rows per update, 16-token completions; ``knobs`` change the configuration, the rest the spec."""
    passthrough = {"chat_template": TEMPLATE, "beta": 0.04, **changes.pop("passthrough", {})}
    spec = open_r1.render(
        trial="1/0",
        configuration={**KNOBS, **changes.pop("knobs", {})},
        model=str(tiny / "model"),
        prompts=str(tiny / "prompts.jsonl"),
        rewards=rewards,
        rows_per_update=16,
        max_prompt_length=48,
        max_completion_length=16,
        protocol=protocol,
        passthrough=passthrough,
        checkout=checkout,
    )
    return replace(spec, **changes)


def run_trial(directory: Path, spec: TrialSpec, python: str) -> Ran:
    """One trial in a process of its own, to its end."""
    paths = write_spec(directory, spec)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with RunPaths(directory).log.open("wb") as log:
        process = subprocess.Popen(
            [python, str(START), "trial", "--directory", str(directory)],
            cwd=paths.scratch,
            stdout=log,
            stderr=log,
            env={**kept, **spec.environment},
        )
    end(process)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    return Ran(directory)
