"""The suite of served trials on ``LocalRunner``, with the scripted child and the scripted server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason
from autotune.errors import MachineError
from autotune.machine import hardware
from autotune.ports import Assignment, Companion, Place, RunReport
from tests.contracts.runner_suite import MakeRunner, Seen
from tests.contracts.served_suite import Assign, ServedTrialSuite, Stranger
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.scripted_framework import ScriptedFramework
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import TrialSpec


class TestLocalRunner(ServedTrialSuite):
    @pytest.fixture
    def make_runner(self) -> MakeRunner:
        return lambda **changes: local_runner(self.home, **changes)

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        def assign(
            *, server: dict[str, Any], acts: Any = (), deadline_s: float = PATIENCE_S, memory_limit: int | None = None
        ) -> Assignment:
            wanted = assignment(tmp_path / "attempt", {"server": server, "acts": list(acts)}, deadline_s=deadline_s)
            spec = replace(wanted.study.spec, memory_limit=memory_limit)
            return replace(wanted, study=replace(wanted.study, spec=spec))

        return assign

    @pytest.fixture
    def steal(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Assignment, int], list[int]]]:
        """Takes the server's port just before it is started, so many times; gives the ports tried."""
        strangers: list[Stranger] = []
        companion = ScriptedFramework.companion

        def steal(_: Assignment, times: int) -> list[int]:
            tried: list[int] = []

            def taken(
                self: ScriptedFramework, assignment: Assignment, spec: TrialSpec, place: Place
            ) -> Companion | None:
                tried.append(place.port)
                if len(tried) <= times:
                    strangers.append(Stranger(place.port))
                return companion(self, assignment, spec, place)

            monkeypatch.setattr(ScriptedFramework, "companion", taken)
            return tried

        yield steal
        for stranger in strangers:
            stranger.end()


def outcome_without_server(tmp_path: Path, gpus: int) -> RunReport:
    wanted = assignment(tmp_path / "attempt", {"server": {}})
    resources = replace(wanted.study.spec.resources, gpus=gpus, device="cuda" if gpus else "cpu")
    study = replace(wanted.study, spec=replace(wanted.study.spec, resources=resources))
    return local_runner(TestLocalRunner.home).run(replace(wanted, study=study), Seen(), FakeStop())


def test_a_server_that_cannot_be_had_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ValueError("rollout_gpus 1 of 1 GPUs: nothing would train")

    monkeypatch.setattr(ScriptedFramework, "companion", refused)
    outcome = outcome_without_server(tmp_path, 0).outcome
    assert outcome.reason is FailureReason.INFRA
    assert outcome.message == "the rollout server cannot be started: rollout_gpus 1 of 1 GPUs: nothing would train"


def test_a_lost_gpu_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise MachineError("the driver does not answer for its GPUs: GPU is lost")

    monkeypatch.setattr(hardware, "visible_gpus", lost)
    outcome = outcome_without_server(tmp_path, 2).outcome
    assert outcome.reason is FailureReason.INFRA
    assert outcome.message == "the driver does not answer for its GPUs: GPU is lost"


def test_a_server_keeps_what_its_compiler_made_where_the_trials_keep_theirs(tmp_path: Path) -> None:
    """torch, once imported, would make a folder of its own among the temporary files."""
    python, output = tmp_path / "python", tmp_path / "told"
    python.write_text(f'#!/bin/sh\necho "$TORCHINDUCTOR_CACHE_DIR" > {output}\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    wanted = assignment(tmp_path / "attempt", {"server": {"python": str(python)}})
    assert local_runner(TestLocalRunner.home, caches=tmp_path / "cache").run(wanted, Seen(), FakeStop()).outcome.ok
    assert output.read_text() == f"{tmp_path}/cache/inductor\n"
