"""Which GPUs a trial gets after a fault was seen on one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import MachineError
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import Gpu
from autotune.running.gpu_guard import GpuPool

GPUS = tuple(Gpu(n, f"GPU-{n}", "Example 80GB", 80 << 30, 0, (9, 0), "580.1") for n in range(4))
LASTING = GpuFault("GPU-1", 1, "it has fallen off the bus (XID 79)")
PASSING = GpuFault("GPU-0", 0, "an uncorrectable memory error, contained (XID 94)", lasts=False)


def numbers(pool: GpuPool, count: int) -> list[int]:
    return [gpu.index for gpu in pool.gpus_for_next(GPUS, count)]


def test_without_a_fault_the_first_are_held() -> None:
    assert numbers(GpuPool(), 2) == [0, 1]


def test_others_take_the_place_of_a_faulty_one_as_far_as_there_are_others() -> None:
    pool = GpuPool()
    pool.quarantine([PASSING])
    assert numbers(pool, 3) == [1, 2, 3]
    assert numbers(pool, 4) == [0, 1, 2, 3], "its fault does not last, so it is used rather than none"
    pool.quarantine([LASTING])
    assert numbers(pool, 2) == [2, 3]
    assert numbers(pool, 3) == [0, 2, 3]
    with pytest.raises(MachineError, match=r"needs 4 GPUs, and 3 can be used; GPU 1: .*XID 79.*nvidia-smi --gpu-reset"):
        numbers(pool, 4)


def test_a_fault_that_lasts_is_not_forgotten_for_one_that_does_not() -> None:
    pool = GpuPool()
    pool.quarantine([LASTING, replace(PASSING, uuid="GPU-1", index=1)])
    with pytest.raises(MachineError, match="XID 79"):
        numbers(pool, 4)


def test_a_gpu_that_is_another_kind_than_at_the_beginning_is_refused() -> None:
    pool = GpuPool()
    assert numbers(pool, 4) == [0, 1, 2, 3]
    sliced = replace(GPUS[0], uuid="MIG-1", memory=10 << 30, mig=True)
    with pytest.raises(MachineError, match=r"GPU 0 is .*10\.0 GiB.* now, and the study began on .*80\.0 GiB.*MIG"):
        pool.gpus_for_next((sliced, *GPUS[1:]), 4)
