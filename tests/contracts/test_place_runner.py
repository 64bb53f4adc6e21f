"""The runner suite on a place of a cluster whose agent is in this process: the wire, without Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from autotune.running.cluster.agent import Agent, Share
from autotune.running.cluster.runner import PlaceRunner
from tests.contracts.runner_suite import MakeRunner, RealClock
from tests.contracts.scripted_suite import ScriptedRunnerSuite
from tests.support.scripted import local_runner

ALONE = Share(place=0, index=0, count=1, gpus=0)


class TestPlaceRunner(ScriptedRunnerSuite):
    home = f"place-suite-{os.getpid()}"

    @pytest.fixture(autouse=True)
    def _own_environment(self) -> Iterator[None]:
        """An agent changes that of its process."""
        with patch.dict(os.environ):
            yield

    @pytest.fixture
    def make_runner(self) -> Iterator[MakeRunner]:
        made: list[PlaceRunner] = []

        def make(**changes: Any) -> PlaceRunner:
            inner = local_runner(self.home, **changes)
            hire: Callable[[], Agent] = lambda: Agent(inner, ALONE)  # noqa: E731
            made.append(PlaceRunner(hire, lambda: None, inner.recover, RealClock()))
            return made[-1]

        yield make
        for runner in made:
            runner.close()
