"""The parent's side of a training framework: its words for a trial, its rollout server, its failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol as Port

from autotune.domain import Outcome
from autotune.ports.runners import Assignment
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.diagnosis import Diagnosis

__all__ = ["Companion", "Diagnosis", "Framework", "Place"]


@dataclass(frozen=True)
class Place:
    """Where a trial runs: what a rollout server's launch and the way to it depend on."""

    python: str
    gpus: tuple[str, ...]
    """Those held, as ``CUDA_VISIBLE_DEVICES`` names them; empty on a CPU."""
    port: int
    """Free on the loopback a moment ago; the server's."""
    group_port: int
    """The same, for passing weights on."""


@dataclass(frozen=True)
class Companion:
    """The rollout server of a trial: up before the trial's own process is started, gone with it."""

    argv: tuple[str, ...]
    spec: TrialSpec
    """The trial's, with the way to the server."""
    health: str
    """URL that answers 200 when the server is ready."""
    answer: str
    """What that answer holds if it is this server that gives it, and no stranger at the same port."""
    ready_s: float
    """How long it may take to be ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The server's, on top of what a trial sees."""
    trial_environment: Mapping[str, str] = field(default_factory=dict)
    """The trial's own, the same way."""


class Framework(Port):
    """The parent's side of one training framework; pure."""

    @property
    def name(self) -> str: ...

    def render(self, assignment: Assignment) -> TrialSpec:
        """The assignment in the framework's own words."""
        ...

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        """The rollout server the trial needs beside it, ``None`` if it needs none.

        Raises:
            ValueError: the server cannot be had on the GPUs of ``place``.
        """
        ...

    def diagnose(self, text: str) -> Diagnosis | None:
        """What a log text says went wrong, by the framework's known strings; last cause first."""
        ...

    def suggest(self, outcome: Outcome) -> str:
        """One suggestion for an outcome that has none yet; empty if there is nothing to say."""
        ...
