"""The proposer contract on the Gaussian process: collected only by ``tests/unit/benchmarks/test_optuna_peers.py``.

It runs where torch and scipy can be imported, which is not the tool's own environment.
"""

from __future__ import annotations

import statistics

from autotune.ports import Proposer
from tests.contracts.proposer_suite import Landscape, ProposerSuite, landscape, search
from tests.unit.benchmarks.test_optuna_peers import crashes, with_peer


class TestGp(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return with_peer(world, "gp", seed)

    def test_the_model_decides_from_the_seventh_trial_on(self) -> None:
        """Without it the whole suite could pass on the opening draws and the fallback alone."""
        world = landscape(limit=32)
        found = []
        for seed in range(5):
            made = [t for t in search(self.build(world, seed), world, 30) if t.feasible]
            found.append(max(world.speed(t.configuration) for t in made if t.configuration in world.headline))
        assert statistics.fmean(found) >= 0.94 * world.best(world.headline)

    def test_failures_that_are_not_of_memory_are_avoided(self) -> None:
        assert crashes("gp", 30) < 9
