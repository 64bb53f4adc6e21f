"""Which GPUs exchange data slowly, and the fingerprint of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.cli.doctor.findings import Verdict
from autotune.cli.doctor.machine_checks import check_gpus
from autotune.machine import hardware
from autotune.machine.hardware import nvlink_groups, slow_paths
from autotune.machine.nvml import NVLINK, Gpu

ONE = Gpu(0, "GPU-0", "Example 80GB", 80 << 30, 0, (9, 0), "590.1")


def machine(count: int, joined: Callable[[int, int], bool], first: int = 0) -> list[Gpu]:
    numbers = range(first, first + count)
    paths = {a: tuple((b, NVLINK if joined(a, b) else "one socket") for b in numbers if b != a) for a in numbers}
    return [replace(ONE, index=a, uuid=f"GPU-{a}", paths=paths[a]) for a in numbers]


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (machine(8, lambda a, b: True), None),
        ([ONE, replace(ONE, index=1)], None),
        (machine(2, lambda a, b: False, first=2), "GPUs 2 and 3 are not joined by NVLink (they meet at one socket)"),
        (machine(4, lambda a, b: a // 2 == b // 2), "NVLink joins GPUs 0, 1 and GPUs 2, 3"),
        (machine(3, lambda a, b: {a, b} != {0, 2}), "GPUs 0 and 2 are not joined by NVLink"),
    ],
)
def test_gpus_that_nvlink_does_not_join_are_named(gpus: list[Gpu], said: str | None) -> None:
    text = slow_paths(gpus)
    assert (text is None) == (said is None)
    assert said is None or (said in str(text) and "ZeRO-3 and tensor parallelism" in str(text))


def test_doctor_warns_of_them_among_the_gpus_of_a_study() -> None:
    (found,) = (f for f in check_gpus(machine(2, lambda a, b: False)) if f.name == "GPU links")
    assert (found.verdict, found.command) == (Verdict.WARNING, "nvidia-smi topo -m")
    assert all(f.name != "GPU links" for f in check_gpus(machine(2, lambda a, b: True)))


def test_the_fingerprint_holds_how_they_are_joined_wherever_they_are() -> None:
    pairs = machine(4, lambda a, b: a // 2 == b // 2)
    assert nvlink_groups(pairs) == nvlink_groups(machine(4, lambda a, b: a // 2 == b // 2, 4)) == [[0, 1], [2, 3]]
    here, there = (hardware.describe(gpus=tuple(gpus)) for gpus in (pairs, machine(4, lambda a, b: True)))
    assert here != there
