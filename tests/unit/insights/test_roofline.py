"""The roofline's arithmetic, and the models' shapes it is of."""

from __future__ import annotations

import pytest

from autotune.insights.roofline import PEAKS, DevicePeak, ideal_rate, ideal_seconds, peak_of
from benchmarks.gpu.architectures import ARCHITECTURES

H200 = PEAKS["H200"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("qwen2.5-0.5b", 494_032_768), ("qwen2.5-1.5b", 1_543_714_304), ("qwen2.5-3b", 3_085_938_688)],
)
def test_shapes_have_the_parameters_that_were_published(name: str, parameters: int) -> None:
    assert ARCHITECTURES[name].parameters == parameters


@pytest.mark.parametrize(("name", "millions"), [("qwen2.5-0.5b", 580), ("qwen2.5-1.5b", 201), ("qwen2.5-3b", 108)])
def test_the_roofline_gives_the_figures_it_is_known_by(name: str, millions: float) -> None:
    """512 rows of 200 + 1,000 tokens and one log-prob pass, prompt tokens counted too, in millions an hour."""
    rate = ideal_rate(ARCHITECTURES[name], H200, 200, [1000] * 512, 1) * 1200 / 1000
    assert rate / 1e6 == pytest.approx(millions, rel=0.01)


def test_more_to_do_takes_longer() -> None:
    shape = ARCHITECTURES["qwen2.5-0.5b"]
    plain = ideal_seconds(shape, H200, 200, [1000] * 64, 0)
    assert ideal_seconds(shape, H200, 200, [1000] * 64, 1) > plain
    assert ideal_seconds(shape, H200, 400, [1000] * 64, 0) > plain
    assert ideal_seconds(ARCHITECTURES["qwen2.5-3b"], H200, 200, [1000] * 64, 0) > 3 * plain
    assert ideal_seconds(shape, DevicePeak(H200.flops / 2, H200.bandwidth / 2), 200, [1000] * 64, 0) == pytest.approx(
        2 * plain
    )


def test_one_long_row_costs_what_it_reads_alone() -> None:
    """The same tokens in rows of one length are quicker: the last row alone reads all weights for each of its own."""
    shape = ARCHITECTURES["qwen2.5-0.5b"]
    level = ideal_rate(shape, H200, 200, [500] * 64, 0)
    assert ideal_rate(shape, H200, 200, [484] * 63 + [500 * 64 - 484 * 63], 0) < 0.8 * level


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Example 1", None),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, known: str | None) -> None:
    """L40S must not be taken for an L4, and an unknown GPU has no roofline rather than a wrong one."""
    assert peak_of(name) == (PEAKS[known] if known else None)
