"""Protocol of the parent side of a training framework: renders trials, starts rollout servers, diagnoses failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol as Port

from autotune.domain import Outcome
from autotune.ports.runners import Assignment
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.failures import Diagnosis


@dataclass(frozen=True)
class Place:
    """Interpreter, GPUs and ports that are available for the launch of a trial's rollout server."""

    python: str
    gpus: tuple[str, ...]
    """GPUs held, as values of ``CUDA_VISIBLE_DEVICES``; empty on a CPU."""
    port: int
    """Free loopback port for the server's HTTP requests."""
    group_port: int
    """Free loopback port for the transfer of weights."""


@dataclass(frozen=True, kw_only=True)
class ServerLaunch:
    """Launch of a rollout server."""

    argv: tuple[str, ...]
    health: str
    """URL that answers 200 when the server is ready."""
    answer: str
    """Text in that answer which identifies this server, so that a foreign server at the same port is noticed."""
    ready_s: float
    """Longest time until the server is ready, in seconds."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the server, added to those of a trial."""


@dataclass(frozen=True, kw_only=True)
class Companion(ServerLaunch):
    """Launch of a trial's rollout server. The server starts before the trial's process and ends after it."""

    spec: TrialSpec
    """Specification of the trial, with the settings that connect it to the server."""
    trial_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that only this trial has."""


class Framework(Port):
    """Parent side of one training framework: renders trials and diagnoses failures. Pure."""

    @property
    def name(self) -> str: ...

    def render(self, assignment: Assignment) -> TrialSpec:
        """Translates an assignment into the framework's own configuration format."""

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        """Returns the rollout server of the trial; ``None`` if it needs none. Raises ``ValueError`` if none can be
        started."""

    def diagnose(self, text: str) -> Diagnosis | None:
        """Finds the causes of a failure in a log by the framework's known error texts; last cause first."""

    def suggest(self, outcome: Outcome) -> str:
        """Returns one suggestion for an outcome that has none; empty if there is nothing to suggest."""
