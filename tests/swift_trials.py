"""Runs real ms-swift trials of a tiny model for the tests, in the interpreter ``AUTOTUNE_SWIFT_PYTHON`` names."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trl_trials import QUIET, ROOT, START, Ran, end, write_spec
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks import ms_swift

VARIABLE = "AUTOTUNE_SWIFT_PYTHON"
REQUIRED = "AUTOTUNE_TEST_FRAMEWORKS"
"""Set by ``make test-frameworks``: an environment that is missing fails instead of being skipped."""


def swift_python() -> str:
    """The interpreter with ms-swift; without one the test is skipped, or fails where it was asked for."""
    python = os.environ.get(VARIABLE, "")
    if python and Path(python).exists():
        return python
    what = f"{VARIABLE} names no interpreter with ms-swift; make one with `make env-swift`"
    if os.environ.get(REQUIRED):
        raise AssertionError(what)
    pytest.skip(what)


def build_tiny(folder: Path) -> Path:
    """The tiny random model and prompts of the TRL tests, made by ms-swift's own interpreter."""
    run = subprocess.run(
        [swift_python(), str(ROOT / "tests" / "tiny_model.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return folder


def swift_spec(
    tiny: Path, reward: RewardSpec | tuple[RewardSpec, ...], protocol: Protocol = QUIET, **changes: Any
) -> TrialSpec:
    """16 rows per update, 16-token completions; ``knobs`` change the configuration, the rest the spec."""
    knobs = {
        "micro_batch_size": 4,
        "num_generations": 4,
        "gradient_checkpointing": False,
        "precision": "fp32",
        "master_weights": "fp32",
        "attn_implementation": "sdpa",
        "rollout_engine": "transformers",
        "dataloader_workers": 0,
        **changes.pop("knobs", {}),
    }
    spec = ms_swift.render(
        trial="1/0",
        configuration=knobs,
        model=str(tiny / "model"),
        prompts=str(tiny / "prompts.jsonl"),
        rewards=reward if isinstance(reward, tuple) else (reward,),
        rows_per_update=16,
        max_prompt_length=48,
        max_completion_length=16,
        protocol=protocol,
        passthrough=changes.pop("passthrough", {}),
    )
    return replace(spec, **changes)


def run_trial(directory: Path, spec: TrialSpec) -> Ran:
    """One trial in a process of its own, to its end."""
    paths = write_spec(directory, spec)
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    environment.pop("PYTHONPATH", None)
    ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(spec.world_size))
    started = ("-m", "torch.distributed.run", *ranks) if spec.world_size > 1 else ()
    with paths.log.open("wb") as log:
        process = subprocess.Popen(
            [swift_python(), *started, str(START), "trial", "--directory", str(directory)],
            cwd=paths.scratch,
            stdout=log,
            stderr=log,
            env=environment,
        )
    end(process)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    ran = Ran(directory)
    assert (process.returncode == 0) == ran.result.ok
    return ran
