"""Which objectives tie the micro-batch; that they are these, and no others, is measured in tests/parity."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.specification.build import resources_for
from autotune.specification.request import ResolvedRequest
from search_spaces.configuration import ModelFacts, Resources
from search_spaces.own_keys import per_micro_batch
from tests.parity.objectives import OBJECTIVES, Objective


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_what_is_measured_is_what_is_ruled(objective: Objective) -> None:
    tied = "micro-batch" in objective.averages_over
    assert bool(per_micro_batch("trl", objective.keys)) == tied


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"loss_type": "dapo", "entropy_coef": 0.0, "top_entropy_quantile": 1.0, "use_adaptive_entropy": False}, ""),
        ({"loss_type": "bnpo"}, "loss_type bnpo"),
        ({"entropy_coef": 0.01}, "entropy_coef 0.01"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile 0.2"),
        ({"use_adaptive_entropy": True}, "use_adaptive_entropy true"),
        ({"router_aux_loss_coef": 0.001}, "router_aux_loss_coef 0.001"),
        ({"router_aux_loss_coef": None}, ""),
    ],
)
def test_the_key_is_named(settings: dict[str, Any], said: str) -> None:
    assert per_micro_batch("trl", settings) == said
    assert per_micro_batch("verl", settings) == ""


def test_a_study_is_told() -> None:
    """Else the rule would never speak."""
    request = ResolvedRequest(passthrough={"loss_type": "bnpo"}, rows_per_update=16, max_completion_length=8)
    resources = resources_for(Resources(), request, ModelFacts(), {})
    assert resources.per_micro_batch == "loss_type bnpo"
    assert resources.as_json()["per_micro_batch"] == "loss_type bnpo"
