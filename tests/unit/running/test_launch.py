from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration
from autotune.frameworks import TrlFramework
from autotune.ports import Assignment, Rendezvous
from autotune.running.launch import caches, command, environment, launched
from tests.support import factories
from trainer.child.contract import RunPaths, TrialSpec

START = Path("/child/start.py")
PATHS = RunPaths(Path("/runs/a b/1"))


def spec(ranks: int = 1, **knobs: Any) -> TrialSpec:
    """As the framework renders it for a study on ``ranks`` CPU processes."""
    made = factories.study_spec(resources=factories.resources(cpu_ranks=ranks, cpu_cores=4))
    trial = factories.trial(configuration=Configuration({"micro_batch_size": 2, **knobs}))
    return TrlFramework().render(Assignment(factories.study(spec=made), trial, PATHS.root, 60.0))


def test_one_process_is_started_as_it_always_was() -> None:
    assert command("/env/bin/python", START, PATHS, spec()) == (
        *("/env/bin/python", "/child/start.py", "trial", "--directory", "/runs/a b/1"),
    )
    assert environment(spec(), 4, {}) == {}
    assert not launched(spec(zero_stage=0)), "no ZeRO is no launcher"


def test_several_ranks_meet_on_the_loopback_and_leave_nothing_elsewhere() -> None:
    argv = command("/env/bin/python", START, PATHS, spec(2))
    assert argv[:3] == ("/env/bin/python", "-m", "torch.distributed.run")
    options = argv[3 : argv.index("/child/start.py")]
    assert options[options.index("--nproc-per-node") + 1] == "2"
    assert options[options.index("--local-addr") + 1] == "127.0.0.1"
    assert "--standalone" in options  # a free port, and no other machine
    assert Path(options[options.index("--log-dir") + 1]).is_relative_to(PATHS.scratch)
    assert argv[argv.index("/child/start.py") :] == ("/child/start.py", "trial", "--directory", "/runs/a b/1")


def test_ranks_of_several_nodes_meet_at_the_first() -> None:
    made, meeting = replace(spec(2), world_size=8), Rendezvous("10.0.0.1", 29501, node=1, nodes=2)
    argv = command("/env/bin/python", START, PATHS, made, meeting)
    options = argv[3 : argv.index("/child/start.py")]
    by_option = dict(zip(options[::2], options[1::2], strict=True))
    assert (by_option["--nnodes"], by_option["--node-rank"], by_option["--nproc-per-node"]) == ("2", "1", "4")
    assert (by_option["--master-addr"], by_option["--master-port"]) == ("10.0.0.1", "29501")
    assert "--standalone" not in options
    assert environment(made, 8, {}, meeting) == {"OMP_NUM_THREADS": "2"}, "the node's cores, among its own ranks"


@pytest.mark.parametrize("knobs", [{"zero_stage": 2}, {"fsdp": "fsdp2"}])
def test_what_shards_is_launched_even_with_one_process(knobs: dict[str, Any]) -> None:
    """DeepSpeed and FSDP take their place among the ranks from the launcher."""
    assert launched(spec(1, **knobs))
    assert "--nproc-per-node" in command("python", START, PATHS, spec(1, **knobs))


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(4, 2, "2"), (2, 2, "1"), (3, 2, "1"), (8, 1, "8")])
def test_the_cores_are_shared_among_the_ranks(cores: int, ranks: int, threads: str) -> None:
    """torchrun would give each one thread, and half of the machine would rest."""
    made = replace(spec(2, zero_stage=1), world_size=ranks)
    assert environment(made, cores, {}) == {"OMP_NUM_THREADS": threads}


def test_a_number_of_threads_the_user_set_stays() -> None:
    assert environment(spec(2), 4, {"OMP_NUM_THREADS": "3"}) == {}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("own", [{}, {"OMP_NUM_THREADS": "3", "GLIBC_TUNABLES": "glibc.malloc.check=1"}])
def test_the_configurations_variables_reach_every_rank_whatever_the_tuner_has(ranks: int, own: dict[str, str]) -> None:
    """A malloc reads its tunables before the first line of the child runs."""
    tunables = environment(spec(ranks, host_allocator="keep_huge_pages"), 4, own)["GLIBC_TUNABLES"].split(":")
    assert {"glibc.malloc.mmap_max=0", "glibc.malloc.hugetlb=1"} <= set(tunables)
    assert "GLIBC_TUNABLES" not in environment(spec(ranks, host_allocator="default"), 4, own)


def test_what_is_compiled_is_kept_in_the_home_unless_the_user_says_where() -> None:
    assert caches(Path("/home/cache"), {}) == {"TORCHINDUCTOR_CACHE_DIR": "/home/cache/inductor"}
    assert caches(Path("/home/cache"), {"TORCHINDUCTOR_CACHE_DIR": "/mine"}) == {}
    assert caches(None, {}) == {}
