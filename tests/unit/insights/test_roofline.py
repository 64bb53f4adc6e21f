"""The roofline's arithmetic, and the models' shapes it is of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.insights.roofline import ideal_rate, ideal_seconds, roof_for
from autotune.machine.data_sheets import SHEETS
from benchmarks.gpu.architectures import ARCHITECTURES
from search_spaces.configuration import ModelFacts

H200 = SHEETS["H200"]


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
    half = replace(H200, flops={"bf16": H200.rate("bf16") / 2}, bandwidth=H200.bandwidth / 2)
    assert ideal_seconds(shape, half, 200, [1000] * 64, 0) == pytest.approx(2 * plain)


def test_one_long_row_costs_what_it_reads_alone() -> None:
    """The same tokens in rows of one length are quicker: the last row alone reads all weights for each of its own."""
    shape = ARCHITECTURES["qwen2.5-0.5b"]
    level = ideal_rate(shape, H200, 200, [500] * 64, 0)
    assert ideal_rate(shape, H200, 200, [484] * 63 + [500 * 64 - 484 * 63], 0) < 0.8 * level


@pytest.mark.parametrize(("name", "known"), [("NVIDIA L40S", "L40S"), ("NVIDIA L4", "L4"), ("Example 1", None)])
def test_a_gpu_is_known_by_its_name(name: str, known: str | None) -> None:
    """L40S must not be taken for an L4, and an unknown GPU has no roofline rather than a wrong one."""
    model = ModelFacts(parameters=10**9, layers=16, hidden_size=2048, attention_heads=16, key_value_heads=8)
    found = roof_for(model, name, [100])
    assert (found and found.peak) is (SHEETS[known] if known else None)
