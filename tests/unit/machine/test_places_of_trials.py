"""Equal shares of one machine."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import SimpleNamespace as Of

import pytest

from autotune.errors import UsageError
from autotune.machine import hardware
from autotune.machine.lanes import CPUS_VARIABLE, lanes
from autotune.wiring import lanes_of
from tests.support.factories import GIB
from tests.support.made_up_files import write
from trainer.child import guard

EIGHT = tuple(range(16))


def test_every_gpu_and_cpu_belongs_to_one_lane() -> None:
    found = lanes(4, 2, EIGHT, 64 * GIB, None)
    assert [lane.gpus for lane in found] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [cpu for lane in found for cpu in lane.cpus] == list(EIGHT)
    assert {len(lane.cpus) for lane in found} == {4}
    assert [lane.memory for lane in found] == [16 * GIB] * 4
    assert found[1].name == "GPUs 2-3"


@pytest.mark.parametrize(("socket", "cores"), [(56, 14), (50, 12), (52, 13)])
def test_eight_places_share_no_core_and_keep_to_the_socket_of_their_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, socket: int, cores: int
) -> None:
    """Threads numbered as on usual nodes: of each socket the first ones, then siblings; GPUs 0 to 3 on the second."""
    for cpu in range(2 * (both := 2 * socket)):
        topology = f"cpu{cpu}/topology/"
        write(tmp_path, topology + "physical_package_id", f"{cpu % both // socket}\n")
        write(tmp_path, topology + "core_id", f"{cpu % socket}\n")
        mask = f"{1 << cpu | 1 << (cpu + both) % (2 * both):056x}"
        write(tmp_path, topology + "thread_siblings", ",".join(mask[at : at + 8] for at in range(0, 56, 8)) + "\n")
    near = [tuple(cpu for cpu in range(2 * both) if cpu % both // socket != gpu // 4) for gpu in range(8)]
    for name in ("by_core", "threads_of_core"):
        monkeypatch.setattr(hardware, name, functools.partial(getattr(hardware, name), root=tmp_path))
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2 * both)
    monkeypatch.setattr(hardware, "visible_gpus", lambda: [Of(index=gpu, cpus=near[gpu]) for gpu in range(8)])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(2 * both)))
    found = lanes_of(Of(resources=Of(gpus=1), memory_limit=None), 8)  # type: ignore[arg-type]
    own = [{cpu % both for cpu in lane.cpus} for lane in found]
    assert [(len(lane.cpus), len(each)) for lane, each in zip(found, own, strict=True)] == [(2 * cores, cores)] * 8
    assert len(set.union(*own)) == 8 * cores
    assert [{core // socket for core in each} for each in own] == [{1}] * 4 + [{0}] * 4
    assert [lane.name for lane in found] == [f"GPU {gpu}" for gpu in range(8)]


def test_a_lane_has_the_cpus_beside_its_gpus_as_far_as_there_are_any() -> None:
    near = [(4, 5, 6, 7)] * 2 + [(0, 1, 2, 3)] * 2
    assert [lane.cpus for lane in lanes(2, 2, range(8), None, None, near=near)] == [(4, 5, 6, 7), (0, 1, 2, 3)]
    found = lanes(4, 1, range(8), None, None, near=[(4, 5, 6, 7)] * 4)
    assert [lane.cpus for lane in found] == [(4, 5), (6, 7), (0, 1), (2, 3)], "each CPU belongs to one lane"


def test_without_gpus_a_lane_is_named_by_its_cpus() -> None:
    assert [lane.name for lane in lanes(2, 0, (0, 2, 4, 6), None, None)] == ["CPUs 0, 2", "CPUs 4, 6"]


def test_a_studys_own_limit_stays() -> None:
    assert [lane.memory for lane in lanes(2, 1, EIGHT, 64 * GIB, 8 * GIB)] == [8 * GIB] * 2


def test_a_machine_that_is_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match="--at-once 3: a trial needs a CPU core"):
        lanes(3, 0, (0, 1), None, None)
    with pytest.raises(UsageError, match=r"--at-once 2: 2 trials of 40.0 GiB .* need more than the 64.0 GiB"):
        lanes(2, 1, EIGHT, 64 * GIB, 40 * GIB)


def test_only_the_trials_own_cpus_tell_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    one = 100 * guard.TICKS
    stat.write_text(f"cpu {3 * one} 0 0 0 0 0 0 0\ncpu0 {one} 0 0 0 0 0 0 0\ncpu1 {2 * one} 0 0 0 0 0 0 0\nintr 1\n")
    assert guard.machine_cpu(stat) == (300.0, 0.0, 2)
    monkeypatch.setenv(CPUS_VARIABLE, "1")
    assert guard.machine_cpu(stat) == (200.0, 0.0, 1)
    assert guard.CPUS_VARIABLE == CPUS_VARIABLE
