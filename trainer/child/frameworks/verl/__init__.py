"""verl: its own entry point as a trial, and its own file logger as records."""

from __future__ import annotations

from typing import Any, Dict

from ...contract import TrialSpec
from .fields import describe_fields
from .metrics import LIMITS, MetricsError, StepLayout, cycle_of, read_log, records


def run_trial(trial: Any) -> None:
    """See ``run.run_trial``; imported only then, because verl's own processes import this package as well."""
    from .run import run_trial as run

    run(trial)


def key(spec: TrialSpec) -> str:
    """Key of the imports a process can share: the framework alone."""
    return spec.framework


def bring_in_ahead(_: TrialSpec) -> None:
    """Nothing: verl is a process of its own."""


def rehearse() -> bool:
    """There is nothing that a fork could break."""
    return True


def fits(_: Dict[str, Any], __: TrialSpec) -> bool:
    """Whether a used worker may run another trial: no, each has a Ray of its own, which ends with the process tree."""
    return False


def put_back(_: Dict[str, Any]) -> str:
    """What of a trial could not be got rid of, so that the worker is replaced."""
    return "what verl has started"
