"""The campaign's draws and its mutants, without running them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaign.faults import FAULTS
from tests.campaign.mutants import MUTANTS
from tests.campaign.plans import drawn

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", MUTANTS)
def test_the_guard_a_mutant_takes_out_is_there_once(name: str) -> None:
    mutant = MUTANTS[name]
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1


def test_every_fault_suits_one_of_the_studies_of_an_hour() -> None:
    plans = [drawn(random.Random(f"36/{n}"), n, real=True, disk=True) for n in range(60)]
    assert plans == [drawn(random.Random(f"36/{n}"), n, real=True, disk=True) for n in range(60)]
    assert {plan.at_once for plan in plans} == {1, 2}
    assert {plan.database for plan in plans} == {"sqlite", "postgresql"}
    assert any(plan.real for plan in plans)
    assert [fault.name for fault in FAULTS if not any(map(fault.suits, plans))] == []
