"""The runner suite on a place of a real Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from autotune.running.cluster.places import planned
from autotune.running.cluster.ray_cluster import RayCluster
from autotune.running.cluster.runner import PlaceRunner
from tests.contracts.runner_suite import MakeRunner, RealClock
from tests.contracts.scripted_suite import ScriptedRunnerSuite
from tests.support.ray_nodes import needs_ray, nodes
from tests.support.scripted import local_runner

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with nodes(1) as found:
        yield RayCluster(found.address)


class TestRayRunner(ScriptedRunnerSuite):
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
