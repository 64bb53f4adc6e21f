"""What ``doctor`` says of cores, clock, load and GPUs."""

from dataclasses import replace
from typing import Any

from autotune.cli.doctor.findings import Verdict
from autotune.cli.doctor.machine_checks import (
    busy_note,
    check_compiler,
    check_governor,
    check_gpus,
    check_load,
    check_machine,
    check_visible,
    look_at_gpus,
)
from autotune.errors import MachineError
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import Gpu, GpuProcess
from autotune.machine.other_load import CpuLoad
from tests.support.factories import GIB


def gpu(**changes: Any) -> Any:
    base = Gpu(
        index=0,
        uuid="GPU-1",
        name="Example 80GB",
        memory=80 * GIB,
        memory_used=0,
        compute_capability=(9, 0),
        driver="590.1",
    )
    return replace(base, **changes)


def test_gpus_idle_busy_and_with_an_old_driver() -> None:
    idle, busy, old = check_gpus([gpu(), gpu(index=1, memory_used=20 * GIB), gpu(index=2, driver="550.54")])
    assert idle.verdict is Verdict.OK
    assert "80.0 GiB" in idle.detail
    assert busy.verdict is Verdict.PROBLEM, "a study takes every GPU of the kind"
    assert "20.0 GiB in use" in busy.detail
    assert old.verdict is Verdict.WARNING
    assert "580 or newer" in old.detail
    assert busy.command == old.command == "nvidia-smi"


def test_a_missing_compiler_is_a_warning_that_names_the_knobs() -> None:
    """Nothing else tells a user before the trial why ``torch_compile`` is refused."""
    assert check_compiler(lambda program: f"/usr/bin/{program}") == []
    (found,) = check_compiler(lambda _: None)
    assert found.verdict is Verdict.WARNING
    assert "torch_compile" in found.detail
    assert found.command
    (other,) = check_compiler(lambda program: "/usr/bin/g++" if program == "g++" else None, compiler="clang++")
    assert "clang++" in other.detail


def test_little_free_memory_is_a_warning() -> None:
    assert check_machine(2, 100 * GIB, 90 * GIB).verdict is Verdict.OK
    short = check_machine(2, 100 * GIB, 10 * GIB)
    assert short.verdict is Verdict.WARNING
    assert "10.0 GiB of it available" in short.detail


def test_a_clock_that_follows_the_load_is_a_warning() -> None:
    assert check_governor(()) == []
    assert check_governor(("performance",))[0].verdict is Verdict.OK
    (found,) = check_governor(("performance", "powersave"))
    assert found.verdict is Verdict.WARNING
    assert "performance" in found.command


def test_a_busy_machine_names_who_is_busy() -> None:
    found = check_load(CpuLoad(0.6, ((12, "blender", 1.2),)))
    assert found.verdict is Verdict.WARNING
    assert "60 % of the CPU is in use by blender (process 12, 1.2 cores)" in found.detail
    assert check_load(CpuLoad(0.03)).verdict is Verdict.OK
    assert check_load(None).verdict is Verdict.OK


def test_the_gpu_trials_would_take_being_in_use_is_a_problem_and_its_processes_are_named() -> None:
    busy = gpu(memory_used=20 * GIB, processes=(GpuProcess(7, None), GpuProcess(8, None)))
    (found,) = check_gpus([busy], {7: "python", 8: "vllm"}.__getitem__)
    assert found.verdict is Verdict.PROBLEM
    assert "in use by process 7 (python), process 8 (vllm)" in found.detail
    assert found.command == "kill 7 8"
    (hidden,) = check_gpus([busy])
    assert hidden.command == "nvidia-smi", "ids of the driver that are not this system's must not be killed"


def test_a_gpu_that_must_be_cut_into_slices_first_is_a_problem() -> None:
    (found,) = check_gpus([gpu(index=3, mig=True)])
    assert found.verdict is Verdict.PROBLEM
    assert found.command == "sudo nvidia-smi -i 3 -mig 0"


def test_of_slices_a_study_takes_one_and_a_busy_one_beside_it_is_no_problem() -> None:
    first, second = gpu(uuid="MIG-a", mig=True), gpu(uuid="MIG-b", mig=True, memory_used=20 * GIB)
    found = check_gpus([first, second])
    assert [f.verdict for f in found] == [Verdict.OK, Verdict.OK, Verdict.WARNING]
    assert "not used" in found[1].detail
    assert "one slice" in found[2].detail


def test_a_gpu_of_another_kind_is_told_as_not_used() -> None:
    found = check_gpus([gpu(), gpu(index=1), gpu(index=2, name="Small 24GB", memory=24 * GIB, memory_used=9 * GIB)])
    assert [f.verdict for f in found] == [Verdict.OK, Verdict.OK, Verdict.OK, Verdict.WARNING]
    assert "not used" in found[2].detail
    assert "Small 24GB" in found[3].detail


def test_what_cuda_visible_devices_leaves() -> None:
    every = [gpu(), gpu(index=1)]
    assert check_visible(every, every, None) == []
    assert check_visible([], [], "0") == []
    assert check_visible(every, every[:1], "0")[0].verdict is Verdict.OK
    for chosen in ("7", "MIG-1a"):
        (found,) = check_visible(every, [], chosen)
        assert found.verdict is Verdict.WARNING
        assert "leaves 0 of 2" in found.detail
        assert found.command == "unset CUDA_VISIBLE_DEVICES"


def test_a_gpu_that_fell_off_the_bus_is_a_finding_not_the_end() -> None:
    def lost() -> Any:
        raise MachineError("the driver does not answer for its GPUs: GPU is lost")

    (found,) = look_at_gpus(lost, lost, None, lambda _: "")
    assert found.verdict is Verdict.PROBLEM
    assert "GPU is lost" in found.detail


def test_a_study_beside_other_work_is_told_who_that_is() -> None:
    assert busy_note(None) is None
    assert busy_note(CpuLoad(0.01)) is None
    said = busy_note(CpuLoad(0.5, ((7, "make", 1.0),)))
    assert said is not None
    assert "50 % of the CPU" in said
    assert "make (process 7" in said


def test_a_gpu_nothing_can_compute_on_is_told_beside_the_others() -> None:
    faults = [GpuFault("", 3, "the driver does not answer for it (GPU is lost)")]
    found = look_at_gpus(lambda: [gpu()], lambda: [gpu()], None, lambda _: "", lambda: faults)
    assert [f.verdict for f in found] == [Verdict.OK, Verdict.WARNING]
    assert "GPU is lost" in found[1].detail
    assert "trials do without it" in found[1].detail
    assert "nvidia-smi --gpu-reset -i 3" in found[1].command


def test_a_driver_that_forgets_idle_gpus_is_told() -> None:
    (found,) = check_gpus([gpu(persistent=False)])
    assert found.verdict is Verdict.WARNING
    assert found.command == "sudo nvidia-smi -pm 1 -i 0"
    assert check_gpus([gpu(persistent=True)])[0].verdict is Verdict.OK
