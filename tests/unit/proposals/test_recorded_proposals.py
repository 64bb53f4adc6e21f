"""A seeded search proposes what it proposed when these lists were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contracts.proposer_suite import landscape, search
from tests.unit.proposals.test_proposer import built

RECORDED = json.loads((Path(__file__).parent / "recorded" / "tpe.json").read_text())
"""sampler/memory limit/seed -> for each trial its source and its candidate's place. Written before every sampler was
asked through one Optuna study."""


@pytest.mark.parametrize("key", RECORDED)
def test_the_search_is_the_recorded_one(key: str) -> None:
    sampler, limit, seed = key.split("/")
    world = landscape(limit=float(limit))
    made = search(built(world, sampler, int(seed)), world, len(RECORDED[key]) - 1)
    assert [[t.source, world.permitted.index(t.configuration)] for t in made] == RECORDED[key]
