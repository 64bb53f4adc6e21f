"""Devices by name, what is stored of a probe, and what is presumed."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.proposals.times import SHEETS, presumed, probed, sheet_of
from search_spaces.configuration import Resources
from tests.support.not_none import not_none

ANSWER: dict[str, Any] = {
    "device": "cpu",
    "name": "cpu x86_64",
    "threads": 2,
    "flops": {"fp32": 1.5e11, "bf16": 3e11},
    "bandwidth": 1.2e10,
    "kernel_s": 2e-6,
    "seconds": 6.1,
}


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("h100", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("a100-40", "A100-40"),
        ("A100_80", "A100-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L20", "L20"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_a_name_in_any_spelling_finds_its_sheet(name: str, sheet: str) -> None:
    found = not_none(sheet_of(name))
    assert found.name == sheet


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A2", "L400", "Tesla P4", "cpu", "GeForce RTX 4080", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
)
def test_another_device_is_not_taken_for_a_known_one(name: str) -> None:
    assert sheet_of(name) is None


def test_sheets_are_in_proportion() -> None:
    for name, sheet in SHEETS.items():
        assert sheet.source, name
        assert 1e11 < sheet.bandwidth < 1e13
        assert sheet.memory is not None
        assert 1.5e10 < sheet.memory < 3e11
        assert sheet.rate("bf16") >= sheet.rate("fp32")
        assert sheet.rate("fp8") in (sheet.rate("bf16"), sheet.flops.get("fp8"))
    assert SHEETS["A100-80"].rate("fp8") == SHEETS["A100-80"].rate("bf16"), "it has no FP8"


def test_a_probe_is_of_plain_data() -> None:
    found = not_none(probed(ANSWER))
    assert (found.shared, found.measured, found.flops["bf16"], found.kernel_s) == (True, True, 3e11, 2e-6)
    assert found.rate("bf16") > 3e11, "a data sheet would say more than what was reached"


@pytest.mark.parametrize(
    "broken",
    [{}, {"flops": {}, "bandwidth": 1e10}, {"flops": {"fp32": 1e11}}, {"flops": {"fp32": -1.0}, "bandwidth": 1e10},
     {"flops": {"fp32": 1e11}, "bandwidth": float("nan")}, {"flops": {"fp32": True}, "bandwidth": 1e10}],
)  # fmt: skip
def test_a_probe_without_figures_is_none(broken: dict[str, Any]) -> None:
    assert probed(broken) is None


def test_what_is_presumed_is_wide_and_grows_with_cores() -> None:
    two, many = (presumed(Resources(cpu_cores=n)) for n in (2, 64))
    assert two.spread == many.spread == 1.0
    assert two.shared
    assert many.rate("bf16") == 32 * two.rate("bf16")
    assert two.bandwidth < many.bandwidth < 32 * two.bandwidth, "cores share the memory"
    unknown = presumed(Resources(gpus=1, device="cuda"), "NVIDIA Something")
    assert (unknown.spread, unknown.shared) == (1.0, False)
    assert presumed(Resources(gpus=1, device="cuda"), "NVIDIA H100 80GB HBM3") == SHEETS["H100"]
