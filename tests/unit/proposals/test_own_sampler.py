"""A sampler class of the user's: ``--sampler module:Class``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.ports import Proposer
from autotune.proposals.samplers import named_sampler
from tests.contracts.proposer_suite import Landscape, ProposerSuite, landscape, search
from tests.unit.proposals.test_proposer import built

SOURCE = """
import optuna

class Seeded(optuna.samplers.RandomSampler):
    def __init__(self, seed=None):
        super().__init__(seed=seed)

class Last(optuna.samplers.RandomSampler):
    "Always the last place of each knob."
    def __init__(self):
        super().__init__(seed=0)
    def sample_independent(self, study, trial, name, distribution):
        values = getattr(distribution, "choices", None)
        return values[-1] if values else distribution.high

class Wanting(optuna.samplers.RandomSampler):
    def __init__(self, depth, *, width, seed=None):
        super().__init__()

class Stranger:
    pass

not_a_class = optuna.samplers.RandomSampler()
"""


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the user's file."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_samplers.py").write_text(SOURCE)
    (folder / "broken_sampler.py").write_text("import there_is_no_such_package\n")
    (folder / "failing_sampler.py").write_text("1 / 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        yield folder
    for name in ("my_samplers", "broken_sampler", "failing_sampler"):
        sys.modules.pop(name, None)


class TestOwn(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return built(world, "my_samplers:Seeded", seed)


def test_it_is_asked_from_the_first_trial_on_and_draws_by_the_study_s_seed() -> None:
    world = landscape()
    made = [search(built(world, "my_samplers:Seeded", seed), world, 12) for seed in (0, 1, 0)]
    assert {t.source for t in made[0][1:]} == {"my_samplers:Seeded/headline"}
    assert [t.configuration for t in made[0]] == [t.configuration for t in made[2]]
    assert [t.configuration for t in made[0]] != [t.configuration for t in made[1]]


def test_what_it_asks_for_is_proposed_or_else_what_lies_nearest() -> None:
    world = landscape()
    first, second = (t.configuration for t in search(built(world, "my_samplers:Last"), world, 2)[1:])
    assert first == world.baseline.with_(micro_batch_size=32, attn_implementation="sdpa", logprob_rows=16)
    assert len(second.difference(first)) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere_at_all:Sampler", "there is no module nowhere_at_all in .* or on PYTHONPATH"),
        ("my_samplers:Missing", "module my_samplers has no class Missing"),
        ("my_samplers:", "module my_samplers has no class "),
        ("my_samplers:Stranger", "Stranger is not a subclass of optuna.samplers.BaseSampler"),
        ("my_samplers:not_a_class", "not_a_class is not a subclass of"),
        ("my_samplers:Wanting", "its constructor needs depth and width; give a class that is made without arguments"),
        ("broken_sampler:Any", "importing broken_sampler failed: No module named 'there_is_no_such_package'"),
        ("failing_sampler:Any", "importing failing_sampler failed: ZeroDivisionError"),
        (":Sampler", "importing  failed: ValueError"),
    ],
)
def test_one_that_cannot_be_used_is_refused_in_one_sentence(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        named_sampler(name)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_a_file_of_the_user_s_stands_in_no_package_s_way(here: Path) -> None:
    named_sampler("my_samplers:Seeded")
    assert sys.path[-1] == str(here)
