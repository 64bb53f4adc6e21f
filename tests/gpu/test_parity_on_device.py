"""Speed knobs change speed on a GPU too: on the same completions the same update, whatever their values.

In fp32, as on a CPU, because there a difference is a mistake and no rounding; kernels are the device's. What computes
in bf16 alone (flash attention) is in none of these, and engines are compared by their log-probs (``test_engine``).
Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.device import require
from tests.parity.cases import CORE, ORDER, REFERENCE, WRONG, tolerance
from tests.parity.comparison import compare
from tests.parity.running import Case, Ran, build_model, results

pytestmark = [pytest.mark.gpu, pytest.mark.trl, pytest.mark.timeout(660)]

OFFLOADED = Case("activation_offload-True", {"activation_offload": True})
CASES = (*CORE, OFFLOADED)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    require()
    built: Path = build_model(tmp_path_factory.mktemp("parity-model"))
    cases = (REFERENCE, Case("again"), *CASES, *WRONG)
    yield from results(built, tmp_path_factory.mktemp("parity-device"), cases, device="cuda")


def test_the_reference_moves_and_repeats_itself(device: Ran) -> None:
    """Not to the last bit: a GPU adds up in whatever order its blocks end."""
    update = device.update("reference")
    assert abs(update.losses).min() > 0.01
    assert compare(device.update("again"), update).broken(ORDER) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_speed_knob_leaves_the_update_as_it_is(device: Ran, case: Case) -> None:
    difference = compare(device.update(case.name), device.update(case.against))
    loosest = max(tolerance(case), ORDER, key=lambda each: each.gradient)
    assert difference.broken(loosest) == [], difference


@pytest.mark.parametrize("case", CORE, ids=lambda case: case.name)
def test_the_knob_was_really_set(device: Ran, case: Case) -> None:
    seen, usual = device.facts(case.name), device.facts("reference")
    assert all(seen[knob] != usual[knob] for knob in case.knobs), seen


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_accumulation_does_not_pass(device: Ran, case: Case) -> None:
    difference = compare(device.update(case.name), device.update("reference"))
    assert difference.gradient > 1000 * ORDER.gradient
