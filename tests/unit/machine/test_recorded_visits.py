"""Every cycle that a GPU has recorded, through the rules that call a cycle disturbed; and loads that none has shown."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from autotune.machine.gpu_samples import slowed
from autotune.running.gpu_sampler import SLOWED
from trainer.child.contract import GpuUse, Protocol

TABLES = Path(__file__).parents[3] / "benchmarks" / "tables"


def recorded() -> dict[str, list[dict[str, Any]]]:
    """File and trial -> its cycles."""
    found = defaultdict(list)
    for path in sorted(TABLES.glob("h[12]00-*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            found[f"{path.name}:{row.get('number')}"] += row.get("cycles", [])
    return {trial: cycles for trial, cycles in found.items() if cycles}


def marked(cycles: list[dict[str, Any]]) -> list[int]:
    """Indices of the cycles that the clock of the GPU, or CPU time taken by others, makes disturbed."""
    usual: dict[str, float] = {}
    found = []
    for index, cycle in enumerate(cycles):
        use, kind = GpuUse(**(cycle.get("gpu") or {}).get("cycle", {})), cycle["cycle_kind"]
        if slowed(use, usual.get(kind)) > SLOWED or Protocol().objects(cycle["outside_cpu"]):
            found.append(index)
        usual[kind] = max(use.sm_mhz or 0.0, usual.get(kind, 0.0))
    return found


def test_no_cycle_that_a_gpu_has_recorded_is_objected_to() -> None:
    trials = recorded()
    assert len(trials) >= 17
    assert sum(len(cycles) for cycles in trials.values()) >= 80
    assert sum("sm_mhz" in cycle.get("gpu", {}).get("cycle", {}) for of in trials.values() for cycle in of) >= 30
    assert {trial: found for trial, cycles in trials.items() if (found := marked(cycles))} == {}


def cycle(mhz: float, capped: float = 0.0, hot: float = 0.0) -> dict[str, Any]:
    use = {"sm_mhz": mhz, "sm_mhz_max": 1980.0, "power_capped": capped, "hot": hot}
    return {"cycle_kind": "recorded", "outside_cpu": 0.0, "gpu": {"cycle": use}}


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (cycle(1755, capped=0.9), []),
        (cycle(1755), [1, 2]),
        (cycle(1755, capped=0.9, hot=0.5), [1, 2]),
        (cycle(1930), []),
    ],
    ids=["its own load at the power limit", "no reason told", "heat", "a little"],
)
def test_a_load_that_reaches_the_power_limit_is_not_objected_to(later: dict[str, Any], found: list[int]) -> None:
    assert marked([cycle(1980), later, later]) == found
