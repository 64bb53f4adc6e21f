"""Speed knobs change speed: on the same completions a real trainer makes the same update whatever their values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.cases import CORE, ORDER, REFERENCE, WRONG, tolerance
from tests.parity.comparison import compare
from tests.parity.objectives import OBJECTIVES, Objective
from tests.parity.running import Case, Ran, build_model, results

pytestmark = [pytest.mark.slow, pytest.mark.trl, pytest.mark.timeout(660)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("parity-model"))


@pytest.fixture(scope="module")
def core(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-core"), (REFERENCE, Case("again"), *CORE, *WRONG))


def test_the_reference_moves_and_repeats_itself(core: Ran) -> None:
    """Without this every comparison below would be of noise, or of nothing."""
    update = core.update("reference")
    assert abs(update.losses).min() > 0.01
    assert compare(core.update("again"), update).broken(tolerance(REFERENCE)) == []


@pytest.mark.parametrize("case", CORE, ids=lambda case: case.name)
def test_a_speed_knob_leaves_the_update_as_it_is(core: Ran, case: Case) -> None:
    difference = compare(core.update(case.name), core.update(case.against))
    assert difference.broken(tolerance(case)) == [], difference


@pytest.mark.parametrize("case", CORE, ids=lambda case: case.name)
def test_the_knob_was_really_set(core: Ran, case: Case) -> None:
    """A knob that does nothing has no effect on the update either."""
    seen, usual = core.facts(case.name), core.facts("reference")
    assert case.knobs.keys() <= seen.keys()
    assert all(seen[knob] != usual[knob] for knob in case.knobs), seen


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_accumulation_does_not_pass(core: Ran, case: Case) -> None:
    """Far outside the tolerance, so that it is not a lucky tolerance that sees it."""
    difference = compare(core.update(case.name), core.update("reference"))
    assert difference.broken(tolerance(case))
    assert difference.gradient > 1000 * tolerance(case).gradient


@pytest.fixture(scope="module")
def objectives(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    cases = [case for objective in OBJECTIVES for case in objective.cases]
    yield from results(built, tmp_path_factory.mktemp("parity-objectives"), cases)


@pytest.mark.full
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_what_an_objective_averages_over_is_as_stated(objectives: Ran, objective: Objective) -> None:
    """What is tied must really differ, too: the day TRL averages otherwise, a knob is free again."""
    whole, micro, parts = (objectives.update(case.name) for case in objective.cases)
    for kind, one, other in (("micro-batch", micro, whole), ("generation", parts, micro)):
        difference = compare(one, other)
        if kind in objective.averages_over:
            assert difference.gradient > 50 * ORDER.gradient, (kind, difference)
        else:
            assert difference.broken(tolerance(objective.cases[1])) == [], (kind, difference)
