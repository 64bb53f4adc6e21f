"""The runner suite on a place of a real Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.ports import Assignment
from autotune.running.cluster.places import planned
from autotune.running.cluster.ray_cluster import RayCluster
from autotune.running.cluster.runner import PlaceRunner
from tests.contracts.runner_suite import Assign, MakeRunner, RealClock, TrialRunnerSuite
from tests.support.ray_nodes import needs_ray, nodes
from tests.support.scripted import assignment, local_runner

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with nodes(1) as found:
        yield RayCluster(found.address)


class TestRayRunner(TrialRunnerSuite):
    home = f"ray-suite-{os.getpid()}"

    @pytest.fixture
    def make_runner(self, cluster: RayCluster) -> Iterator[MakeRunner]:
        made: list[PlaceRunner] = []
        ((place,),) = planned(cluster.nodes(), 0, 1)

        def make(**changes: Any) -> PlaceRunner:
            inner = local_runner(self.home, **changes)
            cluster.reserve(place)
            release = lambda: cluster.release(0)  # noqa: E731
            made.append(PlaceRunner(lambda: cluster.hire(place, inner), release, inner.recover, RealClock()))
            return made[-1]

        yield make
        for runner in made:
            runner.close()

    @pytest.fixture
    def assign(self, tmp_path: Path) -> Assign:
        def assign(*, slow: bool = False, deadline_s: float = 30.0) -> Assignment:
            script: dict[str, Any] = {"sleep": 0.5} if slow else {}
            return assignment(tmp_path / "attempt", script, deadline_s=deadline_s)

        return assign
