"""Protocol of a training framework's parent side: rendering of trials, rollout server, diagnosis of failures."""

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
    """The place of a trial, as far as the launch of a rollout server depends on it."""

    python: str
    gpus: tuple[str, ...]
    """Those held, as ``CUDA_VISIBLE_DEVICES`` names them; empty on a CPU."""
    port: int
    """Free on the loopback a moment ago; the server's."""
    group_port: int
    """The same, for passing weights on."""


@dataclass(frozen=True, kw_only=True)
class ServerLaunch:
    """Launch of a rollout server."""

    argv: tuple[str, ...]
    health: str
    """URL that answers 200 when the server is ready."""
    answer: str
    """What that answer holds if it is this server that gives it, and no stranger at the same port."""
    ready_s: float
    """How long it may take to be ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The server's, on top of what a trial sees."""


@dataclass(frozen=True, kw_only=True)
class Companion(ServerLaunch):
    """Launch of a trial's rollout server, which runs from before the trial's process until after it."""

    spec: TrialSpec
    """The trial's, with the way to the server."""
    trial_environment: Mapping[str, str] = field(default_factory=dict)
    """The trial's own, on top of what a trial sees."""


class Framework(Port):
    """The parent's side of one training framework; pure."""

    @property
    def name(self) -> str: ...

    def render(self, assignment: Assignment) -> TrialSpec:
        """The assignment in the framework's own configuration format."""

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        """The rollout server the trial needs, if any. Raises ``ValueError``: it cannot be had on ``place``'s GPUs."""

    def diagnose(self, text: str) -> Diagnosis | None:
        """Causes of a failure found in a log text by the framework's known error texts; last cause first."""

    def suggest(self, outcome: Outcome) -> str:
        """One suggestion for an outcome that has none yet; empty if there is nothing to say."""
