"""Runners and assignments of scripted trials."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import TrialKind
from autotune.ports import Assignment
from autotune.running.job import Graces
from autotune.running.local import LocalRunner
from autotune.running.warm_pool import WarmWorkerPool
from autotune.running.watchdog import HangLimits
from tests.contracts.runner_suite import RealClock
from tests.support import factories
from tests.support.scripted_framework import ScriptedFramework
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import TrialSpec

CHILD = Path(__file__).with_name("scripted_child.py").resolve()
GRACES = Graces(terminate_s=0.4, kill_s=3.0, linger_s=0.5, stack_s=0.3)


def local_runner(home: str, **changes: Any) -> LocalRunner:
    """A ``LocalRunner`` on the scripted child, with graces scaled for tests."""
    base = LocalRunner(
        python=sys.executable,
        framework=ScriptedFramework(),
        home=home,
        clock=RealClock(),
        start=CHILD,
        graces=GRACES,
        hang_limits=HangLimits(quiet_s=PATIENCE_S, phase_s=PATIENCE_S),
    )
    return replace(base, **changes)


class TwoNodes(ScriptedFramework):
    """Each trial has two ranks."""

    def render(self, assignment: Assignment) -> TrialSpec:
        return replace(super().render(assignment), world_size=2)


def launcher(folder: Path) -> str:
    """An interpreter whose ``torchrun`` is ``scripted_launcher.py``."""
    python = folder / "launching-python"
    script = Path(__file__).with_name("scripted_launcher.py").resolve()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    return str(python)


def assignment(
    directory: Path, script: dict[str, Any] | None = None, *, deadline_s: float = PATIENCE_S, **knobs: Any
) -> Assignment:
    """Attempt 1 at trial 0 of study 1 with this script."""
    workload = factories.workload(passthrough={"script": script or {}})
    study = factories.study(spec=factories.study_spec(workload=workload, framework="scripted"))
    trial = factories.trial(configuration=factories.configuration(**knobs), attempt=1)
    return Assignment(study, trial, directory, deadline_s)


def keeper(root: Path) -> WarmWorkerPool:
    """A ``WarmWorkerPool`` with the tests' graces."""
    return WarmWorkerPool(root, RealClock(), GRACES)


def searched(given: Assignment, number: int = 1, **changes: Any) -> Assignment:
    """The assignment as a search trial of that number; ``changes`` are the trial's."""
    return replace(given, trial=replace(given.trial, **{"kind": TrialKind.SEARCH, "number": number, **changes}))
