"""Which GPUs a study holds. Were one wrong, ranks on unlike GPUs would be measured, or somebody else's be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import MachineError, UsageError
from autotune.machine.gpu_choice import choose, environment, held
from autotune.machine.nvml import Gpu

GIB = 1 << 30
LARGE = Gpu(0, "GPU-0", "Example 80GB", 80 * GIB, 0, (9, 0), "580.1")


def large(index: int, **changes: object) -> Gpu:
    return replace(LARGE, index=index, uuid=f"GPU-{index}", **changes)  # type: ignore[arg-type]


def small(index: int) -> Gpu:
    return large(index, name="Other 24GB", memory=24 * GIB, compute_capability=(8, 6))


def part(letter: str, size: int = 10) -> Gpu:
    return replace(LARGE, uuid=f"MIG-{letter}", name=f"Example MIG {size}gb", memory=size * GIB, mig=True)


FOUR = tuple(large(n) for n in range(4))


def test_all_of_a_kind_are_held_and_nothing_needs_saying() -> None:
    assert choose(FOUR) == choose(FOUR, 4)
    assert choose(FOUR).gpus == FOUR
    assert choose(FOUR).said == ""
    assert choose(()).gpus == ()


def test_fewer_are_the_first_in_the_order_they_are_visible_in() -> None:
    backwards = FOUR[::-1]
    found = choose(backwards, 2)
    assert found.gpus == backwards[:2]
    assert "4 visible GPUs, 2 will be used: 3, 2" in found.said


def test_none_is_a_run_on_the_cpu() -> None:
    found = choose(FOUR, 0)
    assert found.gpus == ()
    assert found.said == "--gpus 0: trials run on the CPU, 4 GPUs are left alone"
    assert environment(found.gpus) == {"CUDA_VISIBLE_DEVICES": ""}
    assert choose((), 0).said == ""


@pytest.mark.parametrize(
    ("visible", "wanted", "sentence"),
    [
        (
            (),
            1,
            "--gpus 1: no GPU is visible here; `plan` and `doctor --gpu` take a --config for GPUs that are elsewhere",
        ),
        (FOUR[:1], 2, "--gpus 2: 1 GPU is visible"),
        (FOUR, 8, "--gpus 8: 4 GPUs are visible"),
        (
            (large(0), small(1), small(2)),
            3,
            "--gpus 3: a trial uses GPUs of one kind only, and there are "
            "1 × Example 80GB (80.0 GiB) and 2 × Other 24GB (24.0 GiB)",
        ),
        (
            (part("a"), part("b")),
            2,
            "--gpus 2: a process sees one slice of a GPU (MIG) only, and trials on it cannot share imports",
        ),
    ],
)
def test_more_than_there_are_is_refused_in_a_sentence(visible: tuple[Gpu, ...], wanted: int, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        choose(visible, wanted)
    assert str(refused.value) == sentence


def test_a_stored_study_is_named_instead_of_an_option_nobody_typed() -> None:
    with pytest.raises(UsageError, match=r"^study 'first' holds 8 GPUs: 4 GPUs are visible$"):
        choose(FOUR, 8, "study 'first' holds 8 GPUs")


def test_unlike_gpus_are_reduced_to_the_most_of_a_kind() -> None:
    found = choose((small(0), large(1), small(2)))
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert "of one kind only, and the others are Example 80GB (80.0 GiB)" in found.said
    assert [gpu.index for gpu in choose((small(0), large(1), small(2)), 1).gpus] == [0]


def test_of_as_many_the_larger_kind_is_held() -> None:
    assert [gpu.index for gpu in choose((small(0), large(1))).gpus] == [1]


@pytest.mark.parametrize(("less", "count"), [(0.004, 2), (0.02, 1)])
def test_what_the_driver_keeps_back_makes_no_other_kind(less: float, count: int) -> None:
    other = large(1, memory=int(80 * GIB * (1 - less)))
    assert len(choose((LARGE, other)).gpus) == count


def test_another_capability_under_the_same_name_is_another_kind() -> None:
    assert len(choose((LARGE, large(1, compute_capability=(8, 9)))).gpus) == 1


def test_of_slices_one_is_held_and_told() -> None:
    found = choose((part("a"), part("b"), part("c", 20)))
    assert [gpu.uuid for gpu in found.gpus] == ["MIG-c"]
    assert "one slice of a GPU (MIG) only" in found.said
    assert environment(found.gpus)["CUDA_VISIBLE_DEVICES"] == "MIG-c"
    assert choose((part("a"),)).said == ""


def test_whole_gpus_go_before_slices() -> None:
    assert choose((part("a"), *FOUR[1:])).gpus == FOUR[1:]


def test_a_gpu_that_has_to_be_cut_first_cannot_be_used() -> None:
    with pytest.raises(MachineError, match="GPU 2 can only be used in slices"):
        choose((large(2, mig=True),))
    assert choose((large(2, mig=True), large(3))).gpus == (large(3),)


def test_whole_gpus_are_told_by_number_which_deepspeed_needs_and_counted_by_the_bus() -> None:
    variables = environment((large(4), large(6)))
    assert variables == {"CUDA_VISIBLE_DEVICES": "4,6", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_study_whose_gpus_are_gone_is_told_how_many_are_left() -> None:
    assert held(FOUR, 3) == FOUR[:3]
    with pytest.raises(MachineError, match="the study holds 4 GPUs, and 3 GPUs are visible now"):
        held(FOUR[:3], 4)
