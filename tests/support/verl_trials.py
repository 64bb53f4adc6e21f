"""Runs verl trials for the tests: the real child, supervised, with ``standin_verl`` in the place of verl."""

from __future__ import annotations

import glob
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import Configuration
from autotune.frameworks.verl import VerlFramework
from autotune.ports import Assignment
from autotune.running.local import LocalRunner
from autotune.running.watchdog import HangLimits
from tests.contracts.runner_suite import RealClock
from tests.support import factories
from tests.support.scripted import GRACES
from trainer.child.contract import Protocol, RewardSpec, RunPaths, TrialSpec
from trainer.frameworks import verl

VARIABLE = "AUTOTUNE_VERL_PYTHON"
REQUIRED = "AUTOTUNE_TEST_FRAMEWORKS"
"""Where it is set, an environment that is missing fails instead of being skipped."""
STANDIN = Path(__file__).with_name("standin_verl").resolve()
GPUS = 2
PROMPT, COMPLETION = 24, 20
LENGTHS = (3, 5, 8, 13, 2, 4, 7, 11)
"""One for each row of an update."""
KNOBS = Configuration({"micro_batch_size": 2, "gradient_accumulation_steps": 2, "num_generations": 4})
PROTOCOL = Protocol(warmup=1, natural=0, recorded=3, lengths=LENGTHS, outside_cpu_limit=9.0)
REWARD = "def score(completions, answer, **columns):\n    return [float(len(c) % 2) for c in completions]\n"


def verl_python() -> str:
    """The interpreter with verl; without one the test is skipped, or fails where it was asked for."""
    python = os.environ.get(VARIABLE, "")
    if python and Path(python).exists():
        return python
    what = f"{VARIABLE} names no interpreter with verl; make one with `make env-verl`"
    if os.environ.get(REQUIRED):
        raise AssertionError(what)
    pytest.skip(what)


class StandIn(VerlFramework):
    """verl, rendered as for GPUs that are not there, and found where the stand-in is.

    ``script`` is what the stand-in does (``standin_verl/verl/trainer/main_ppo.py``); of a trial with looks its
    steps take so long that the parent's answer comes within one.
    """

    def __init__(self, script: dict[str, Any] | None = None, place: Path | None = STANDIN, **settings: Any) -> None:
        self._script = {} if script is None else script
        self._place = place
        self._settings = settings

    def render(self, assignment: Assignment) -> TrialSpec:
        workload, trial = assignment.study.spec.workload, assignment.trial
        spec = verl.render(
            trial=f"{assignment.study.id}/{trial.number}",
            configuration=trial.configuration,
            model=workload.model,
            prompts=workload.prompts,
            rewards=workload.rewards,
            rows_per_update=trial.rows_per_update,
            max_prompt_length=workload.max_prompt_length,
            max_completion_length=workload.max_completion_length,
            protocol=trial.protocol,
            passthrough=workload.passthrough,
            device="cuda",
            world_size=GPUS,
            memory_limit=assignment.study.spec.memory_limit,
        )
        script = {"step_s": 0.25, **self._script} if trial.protocol.looks else self._script
        found = {"VERL_STANDIN": json.dumps(script), **({"PYTHONPATH": str(self._place)} if self._place else {})}
        return replace(spec, environment={**spec.environment, **found}, settings={**spec.settings, **self._settings})


def inputs(folder: Path, reward: str = REWARD) -> dict[str, Any]:
    """Model folder, prompts and reward of a workload."""
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    (folder / "own_reward.py").write_text(reward)
    prompts = folder / "prompts.jsonl"
    rows = ({"prompt": "?" * (5 + number), "answer": str(number)} for number in range(3))
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "model": str(model),
        "prompts": str(prompts),
        "rewards": (RewardSpec("file", "score", path=str(folder / "own_reward.py")),),
    }


def assignment(
    folder: Path, protocol: Protocol = PROTOCOL, *, deadline_s: float = 30.0, reward: str = REWARD, **workload: Any
) -> Assignment:
    """Attempt 1 at trial 0 of study 1, in ``folder / "attempt"``."""
    given = {
        **inputs(folder, reward),
        "max_prompt_length": PROMPT,
        "max_completion_length": COMPLETION,
        "passthrough": {},
    }
    spec = factories.study_spec(
        workload=factories.workload(**{**given, **workload}), framework="verl", baseline=KNOBS, memory_limit=None
    )
    trial = factories.trial(configuration=KNOBS, protocol=protocol, attempt=1)
    return Assignment(factories.study(spec=spec), trial, folder / "attempt", deadline_s)


def runner(home: str, framework: VerlFramework | None = None, **changes: Any) -> LocalRunner:
    """A ``LocalRunner`` on the real child, with graces scaled for tests."""
    base = LocalRunner(
        python=sys.executable,
        framework=framework or StandIn(),
        home=home,
        clock=RealClock(),
        graces=GRACES,
        hang_limits=HangLimits(quiet_s=60.0, phase_s=60.0),
    )
    return replace(base, **changes)


def left_by(given: Assignment) -> list[str]:
    """What an attempt has left outside its folder: its place for sockets, daemons of its Ray."""
    place = RunPaths(given.directory.resolve()).sockets
    daemons = [f"process {process.pid}" for process in psutil.process_iter() if str(place) in _environment(process)]
    return [*([str(place)] if place.exists() else []), *daemons]


def _environment(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.environ().get("RAY_TMPDIR", ""))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def stores() -> set[str]:
    """Object stores that lie in shared memory under a name."""
    return set(glob.glob("/dev/shm/plasma*"))
