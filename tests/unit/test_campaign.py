"""The campaign's draws and its mutants, without running them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaign.__main__ import EARLY, RECORDS, faults_of, study_of
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


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_of_fault_has_its_study_and_what_one_guard_stands_against_the_first(seed: int) -> None:
    met: list[set[str]] = []
    for number in range(len(FAULTS) + 2):  # two of real trials take no turn
        rng = random.Random(f"{seed}/{number}")
        plan, due = study_of(seed, number, rng, real=True, disk=True)
        found = faults_of(rng, plan, due)
        assert due.suits(plan)
        assert due in [fault for _, fault in found]
        assert [records for records, _ in found] == sorted(records for records, _ in found)
        assert max(records for records, _ in found) <= (EARLY if due.alone else RECORDS)
        assert all(0 in fault.codes for _, fault in found if fault is not due), "nothing ends the tuner before"
        met.append({fault.name for _, fault in found})
    assert set.union(*met) == {fault.name for fault in FAULTS}
    first = {fault.name for fault in FAULTS if fault.alone}
    assert first == {"SIGKILL to the tuner", "second tuner", "database replaced"}
    assert first <= set.union(*met[: len(first)])
