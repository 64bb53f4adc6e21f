"""verl: its own entry point as a trial, and its own file logger as records."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from .metrics import LIMITS, MetricsError, StepLayout, cycle_of, read_log, records


def run_trial(trial: Any) -> None:
    """See ``run.run_trial``; imported only then, because verl's own processes import this package as well."""
    from .run import run_trial as run

    run(trial)


def key(spec: TrialSpec) -> str:
    """Key of the imports a process can share: the framework alone."""
    return spec.framework


def bring_in_ahead(_: TrialSpec) -> None:
    """Does nothing: verl is a process of its own."""


def rehearse() -> bool:
    """Does nothing: there is nothing that a fork could break."""
    return True


LEFT = "what verl has started"
"""Of a trial, so that its process runs no other: each has a Ray of its own, which ends with the process tree."""
