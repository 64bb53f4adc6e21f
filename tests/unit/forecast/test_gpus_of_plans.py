"""Kinds of GPUs that a plan can be made for, by name or by figures of a user's own."""

from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.forecast.gpus import GIB, GPUS, gpu_named, gpu_of
from autotune.proposals.times.machine import SHEETS, sheet_of

ASKED_FOR = (
    *("h20", "a800", "h800", "a6000", "rtx3090", "rtx4090", "rtx5090", "l40", "a10", "a30", "v100", "t4"),
    *("mi300x", "rtxpro6000"),
)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_it_has_memory_speed_and_a_source(name: str) -> None:
    gpu = GPUS[name]
    sheet = SHEETS[gpu.sheet]
    assert sheet.source
    assert sheet.memory is not None
    assert 0.85 < gpu.memory / sheet.memory < 1.1, "what the driver shows of what the maker says"
    assert gpu.compute_capability is not None
    half = sheet.flops.get("bf16", sheet.flops["fp16"])
    assert ("bf16" in sheet.flops) is (gpu.compute_capability >= (8, 0))
    assert ("fp8" in sheet.flops) is (gpu.compute_capability >= (8, 9))
    assert half >= sheet.flops["fp32"]
    assert 1e11 < sheet.bandwidth < 1e13


def test_names_ascend_in_memory_and_every_sheet_is_of_a_gpu() -> None:
    sizes = [gpu.memory for gpu in GPUS.values()]
    assert sizes == sorted(sizes)
    assert {gpu.sheet for gpu in GPUS.values()} <= set(SHEETS)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("H20", "h20"), ("NVIDIA H800", "h800"), ("A800 80GB", "a800"), ("RTX A6000", "a6000"),
        ("GeForce RTX 5090", "rtx5090"),
        ("3090", "rtx3090"), ("Tesla V100 16GB", "v100-16"), ("rtx pro 6000", "rtxpro6000"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)  # fmt: skip
def test_any_spelling_is_understood(word: str, name: str) -> None:
    assert gpu_named(word).name == name


@pytest.mark.parametrize(
    ("driver", "sheet"),
    [
        ("NVIDIA H20", "H20"), ("NVIDIA A800-SXM4-80GB", "A800"), ("NVIDIA L40", "L40"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"), ("Tesla V100-SXM2-16GB", "V100-16"), ("Tesla V100-SXM2-32GB", "V100-32"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"), ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
    ],
)  # fmt: skip
def test_a_drivers_name_finds_its_own_sheet(driver: str, sheet: str) -> None:
    found = sheet_of(driver)
    assert found is not None
    assert found.name == sheet


@pytest.mark.parametrize(
    "driver", ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA A10G", "NVIDIA H100 NVL"]
)
def test_another_board_has_no_sheet(driver: str) -> None:
    assert sheet_of(driver) is None


@pytest.mark.parametrize("word", ["h2000", "l40x", "h100nvl", "a100s", "rtx3080", "b300", "a1000", "mi250x", "l2"])
def test_no_hint_leads_to_another_gpu(word: str) -> None:
    with pytest.raises(UsageError, match="give --gpu-memory, --gpu-tflops and --gpu-bandwidth") as refused:
        gpu_named(word)
    assert "did you mean" not in str(refused.value)


def test_a_slip_of_the_keys_is_mended() -> None:
    with pytest.raises(UsageError, match=r"did you mean rtx4090$"):
        gpu_named("xrt4090")


def test_figures_of_ones_own_stand_for_an_unknown_gpu() -> None:
    own = gpu_of("mine", 64, 280, 1600)
    assert (own.name, own.memory, own.compute_capability) == ("mine", 64 * GIB, None)
    assert own.figures is not None
    assert (own.figures.rate("bf16"), own.figures.bytes_s) == (280e12, 1.6e12)
    assert own.figures.rate("fp32") < own.figures.rate("bf16")
    for given in ((64, None, None), (64, 280, None), (None, 280, 1600), (None, None, None)):
        with pytest.raises(UsageError, match="no figures"):
            gpu_of("mine", *given)


def test_they_replace_those_of_a_known_one_one_by_one() -> None:
    assert gpu_of("h100") == GPUS["h100"]
    less = gpu_of("h100", 40)
    assert (less.memory, less.figures, less.sheet) == (40 * GIB, None, "H100")
    slower = gpu_of("h100", tflops=500)
    assert slower.figures is not None
    assert (slower.figures.rate("bf16"), slower.figures.bytes_s) == (500e12, SHEETS["H100"].bandwidth)
    assert slower.figures.link == SHEETS["H100"].link
