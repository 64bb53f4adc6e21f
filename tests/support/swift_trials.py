"""Runs real ms-swift trials of a tiny model for the tests, in the interpreter ``AUTOTUNE_SWIFT_PYTHON`` names."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import trl_trials
from tests.support.trl_trials import QUIET, Ran, run_child, told_of
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.frameworks import ms_swift

VARIABLE = "AUTOTUNE_SWIFT_PYTHON"
REQUIRED = "AUTOTUNE_TEST_FRAMEWORKS"
"""Where it is set, an environment that is missing fails instead of being skipped."""


def swift_python() -> str:
    """The interpreter with ms-swift; without one the test is skipped, or fails where it was asked for."""
    python = os.environ.get(VARIABLE, "")
    if python and Path(python).exists():
        return python
    what = f"{VARIABLE} names no interpreter with ms-swift; make one with `make env-swift`"
    if os.environ.get(REQUIRED):
        raise AssertionError(what)
    pytest.skip(what)


def build_tiny(folder: Path, *size: int) -> Path:
    """The tiny random model and prompts of the TRL tests, made by ms-swift's own interpreter.

    ``size`` is another hidden size and number of layers.
    """
    return trl_trials.build_tiny(folder, *size, python=swift_python())


def swift_spec(
    tiny: Path, reward: RewardSpec | tuple[RewardSpec, ...], protocol: Protocol = QUIET, **changes: Any
) -> TrialSpec:
    """``trl_trials.told_of``; ``knobs`` change the configuration, the rest the spec."""
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
    passthrough = changes.pop("passthrough", {})
    spec = ms_swift.render(configuration=knobs, passthrough=passthrough, **told_of(tiny, reward, protocol))
    return replace(spec, **changes)


def run_trial(directory: Path, spec: TrialSpec) -> Ran:
    """One trial in a process of its own, to its end."""
    ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(spec.world_size))
    started = ("-m", "torch.distributed.run", *ranks) if spec.world_size > 1 else ()
    ran, status = run_child([swift_python(), *started], directory, spec, {"OMP_NUM_THREADS": "2"})
    assert (status == 0) == ran.result.ok
    return ran
