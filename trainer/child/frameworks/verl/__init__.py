"""Runs verl's own entry point as a trial, and reads its file logger as records."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from .course import LIMITS, MetricsError, StepLayout, cycle_of


def run_trial(trial: Any) -> None:
    """Runs a trial (``run.run_trial``); imported late, because verl's own processes import this package as well."""
    from .run import run_trial as run

    run(trial)


def key(spec: TrialSpec) -> str:
    """Returns the key of the imports that processes can share: the framework alone."""
    return spec.framework


def bring_in_ahead(_: TrialSpec) -> None:
    """Returns at once: verl runs in a separate process with its own imports."""
