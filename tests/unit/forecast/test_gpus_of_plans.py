"""Kinds of GPUs that a plan can be made for, by name or by figures of a user's own."""

from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.forecast.gpus import GIB, GPUS, gpu_named, gpu_of
from autotune.machine.data_sheets import SHEETS, sheet_of
from tests.support.imports import of

ASKED_FOR = (
    *("h20", "a800", "h800", "a6000", "rtx3090", "rtx4090", "rtx5090", "l40", "a10", "a30", "v100", "t4"),
    *("mi300x", "rtxpro6000", "h20-3e", "gh200", "a40", "rtx6000ada", "h100-pcie"),
)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_it_has_memory_speed_and_a_source(name: str) -> None:
    gpu = GPUS[name]
    sheet = gpu.figures
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
    assert all(gpu.figures is SHEETS[gpu.figures.name] for gpu in GPUS.values())


@pytest.mark.parametrize(("word", "name"), of("any_spelling_is_understood"))
def test_any_spelling_is_understood(word: str, name: str) -> None:
    assert gpu_named(word).name == name


@pytest.mark.parametrize(("driver", "sheet"), of("a_drivers_name_finds_its_own_sheet"))
def test_a_drivers_name_finds_its_own_sheet(driver: str, sheet: str) -> None:
    found = sheet_of(driver)
    assert found is not None
    assert found.name == sheet


@pytest.mark.parametrize(
    "driver", ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA A10M", "NVIDIA H100 NVL"]
)
def test_another_board_has_no_sheet(driver: str) -> None:
    assert sheet_of(driver) is None


@pytest.mark.parametrize("word", of("no_hint_leads_to_another_gpu"))
def test_no_hint_leads_to_another_gpu(word: str) -> None:
    with pytest.raises(UsageError, match="give --gpu-memory, --gpu-tflops and --gpu-bandwidth") as refused:
        gpu_named(word)
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize(("word", "said"), of("what_is_no_kind_of_gpu_is_told_what_to_write"))
def test_what_is_no_kind_of_gpu_is_told_what_to_write(word: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        gpu_named(word)
    assert said in str(refused.value)
    assert "did you mean" not in str(refused.value)


def test_half_precision_of_the_data_sheets_without_sparsity() -> None:
    """TFLOPS as verl's ``utils/flops_counter.py`` (1dda039) and the makers' sheets have them."""
    published = {
        "MI300X": 1307.4, "H100": 989.4, "H200": 989.4, "H800": 989.4, "GH200": 989.4, "H20": 148, "H20-3e": 148,
        "A100-80": 312, "A100-40": 312, "A800": 312, "L40S": 362.05, "L40": 181.05, "A40": 149.7, "L20": 119.5,
        "L4": 121, "RTX 4090": 165.2, "RTX 5090": 209.5, "RTX 3090": 71, "A10": 125, "A30": 165, "B200": 2250,
        "H100-PCIe": 756,
    }  # fmt: skip
    assert {name: SHEETS[name].flops["bf16"] / 1e12 for name in published} == pytest.approx(published)


def test_a_slip_of_the_keys_is_mended() -> None:
    with pytest.raises(UsageError, match=r"did you mean rtx4090$"):
        gpu_named("xrt4090")


def test_figures_of_ones_own_stand_for_an_unknown_gpu() -> None:
    own = gpu_of("mine", 64, 280, 1600)
    assert (own.name, own.memory, own.compute_capability) == ("mine", 64 * GIB, None)
    assert (own.figures.rate("bf16"), own.figures.bytes_s) == (280e12, 1.6e12)
    assert own.figures.rate("fp32") < own.figures.rate("bf16")
    for given in ((64, None, None), (64, 280, None), (None, 280, 1600), (None, None, None)):
        with pytest.raises(UsageError, match="no figures"):
            gpu_of("mine", *given)


def test_they_replace_those_of_a_known_one_one_by_one() -> None:
    assert gpu_of("h100") == GPUS["h100"]
    less = gpu_of("h100", 40)
    assert (less.memory, less.figures) == (40 * GIB, SHEETS["H100"])
    slower = gpu_of("h100", tflops=500)
    assert (slower.figures.rate("bf16"), slower.figures.bytes_s) == (500e12, SHEETS["H100"].bandwidth)
    assert slower.figures.link == SHEETS["H100"].link
