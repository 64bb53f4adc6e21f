"""Optuna's Gaussian process and CMA-ES as peers: the proposer's contract holds on what they choose."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.domain import Trial
from autotune.ports import Proposer
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers import StudySampler, Turn
from autotune.proposals.samplers.base import CandidateSampler
from autotune.proposals.translation import Observation, evidence, selected
from benchmarks.search.optuna_peers import KEPT_FASTEST, KEPT_NEWEST, Choose, cmaes, gp
from tests.contracts.proposer_suite import Landscape, ProposerSuite, complete, landscape, search
from tests.support import factories

ROOT = Path(__file__).parents[3]
QUERY = "import sys, sysconfig; print(sys.version_info[:2]); print(sysconfig.get_path('purelib'))"


@dataclass(frozen=True)
class Peer(StudySampler):
    """A peer where the product's sampler stands."""

    name: str
    choose: Choose
    known: Sequence[Observation] = ()
    needs_local_search: bool = True

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> Peer:
        return Peer(self.name, self.choose, known)

    def sampler(self, turn: Turn) -> CandidateSampler:
        return CandidateSampler(turn, lambda turn: self.choose(turn.grid, turn.left, self.known, turn.seed))


def with_peer(world: Landscape, name: str, seed: int = 0) -> TwoTrackProposer:
    return TwoTrackProposer(
        headline=world.headline,
        permitted=world.permitted,
        searched=world.searched,
        baseline=world.baseline,
        complete_baseline=world.baseline,
        sampler=Peer(name, {"gp": gp, "cmaes": cmaes}[name]),
        seed=seed,
        one_memory=True,
    )


class TestCmaes(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return with_peer(world, "cmaes", seed)


@pytest.mark.parametrize(("name", "bound"), [("cmaes", 20)])
def test_it_avoids_failures_that_are_not_of_memory(name: str, bound: int) -> None:
    """Half of the space crashes; the model should ask for less than half of it."""
    assert crashes(name, 39) < bound


def crashes(name: str, trials: int) -> int:
    world = landscape()
    proposer = with_peer(world, name)
    made, count = [world.run(world.baseline, 0)], 0
    for number in range(1, trials + 1):
        proposal = proposer.propose(made, number)
        assert proposal is not None
        crash = not proposal[0]["gradient_checkpointing"]
        count += crash
        made.append(world.run(proposal[0], number).with_(worst_case_passed=not crash))
    return count


def training_packages() -> str:
    """Where the training environment keeps torch; behind the tool's own packages it lends nothing else."""
    python = os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"there is no training environment at {python} to take torch from")
    done = subprocess.run([python, "-c", QUERY], check=True, capture_output=True, text=True)
    version, folder = done.stdout.splitlines()
    if version != str(sys.version_info[:2]):
        pytest.skip(f"its packages are for Python {version}")
    return folder


def with_torch(script: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own that can import torch after everything of ours."""
    begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.append({training_packages()!r})\n"
    command = [sys.executable, "-P", "-c", begin + script]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=280)


@pytest.mark.full
def test_the_contract_holds_for_the_gaussian_process() -> None:
    flags = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests/contracts/gp_case.py"]
    done = with_torch(f"import pytest; raise SystemExit(pytest.main({flags!r}))")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.full
def test_the_product_never_imports_torch() -> None:
    done = with_torch(
        "import autotune.wiring, autotune.proposals\n"
        "from tests.contracts.proposer_suite import landscape, search\n"
        "from tests.unit.proposals.test_proposer import built\n"
        "[search(built(landscape(), name), landscape(), 30) for name in ('tpe', 'grey')]\n"
        "print('torch' in sys.modules)\n"
        "from tests.unit.benchmarks.test_optuna_peers import with_peer\n"
        "world = landscape(); made = search(with_peer(world, 'gp'), world, 30)\n"
        "print(len(made), 'torch' in sys.modules)\n"
    )
    assert done.stdout.splitlines() == ["False", "31 True"], done.stderr


def test_of_a_long_history_the_fastest_the_newest_and_the_pending_are_told() -> None:
    world = landscape()
    made = [complete(i, c, 1000.0 - i) for i, c in enumerate(world.permitted[:300])]
    made.append(factories.trial(300, configuration=world.permitted[300]))
    numbers = [e.number for e in selected(evidence(made), KEPT_FASTEST, KEPT_NEWEST)]
    assert numbers == [*range(KEPT_FASTEST), *range(300 - KEPT_NEWEST, 301)]
    assert [e.number for e in selected(evidence(made[:50]), KEPT_FASTEST, KEPT_NEWEST)] == list(range(50))


SEEDS = 32


@pytest.mark.full  # 32 searches
def test_it_finds_what_is_good() -> None:
    found = []
    for seed in range(SEEDS):
        world = landscape(limit=32)
        made = [t for t in search(with_peer(world, "cmaes", seed), world, 30) if t.feasible]
        headline = [t.configuration for t in made if t.configuration in world.headline]
        every = [t.configuration for t in made]
        found.append(
            (world.best(headline) / world.best(world.headline), world.best(every) / world.best(world.permitted))
        )
    assert statistics.fmean(h for h, _ in found) >= 0.90
    assert statistics.fmean(e for _, e in found) >= 0.83
