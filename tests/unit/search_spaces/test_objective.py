"""Which objectives tie the micro-batch; that they are these, and no others, is measured in tests/parity."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.specification.build import resources_for
from autotune.specification.request import ResolvedRequest
from search_spaces.configuration import ModelFacts, Resources
from search_spaces.own_keys import per_micro_batch, quantized
from tests.parity.objectives import OBJECTIVES, Objective
from tests.support.imports import of


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_what_is_measured_is_what_is_ruled(objective: Objective) -> None:
    tied = "micro-batch" in objective.averages_over
    assert bool(per_micro_batch("trl", objective.keys)) == tied


@pytest.mark.parametrize(("settings", "said"), of("the_key_is_named"))
def test_the_key_is_named(settings: dict[str, Any], said: str) -> None:
    assert per_micro_batch("trl", settings) == said
    assert per_micro_batch("verl", settings) == ""


@pytest.mark.parametrize(("loss", "said"), [("grpo", ""), ("bnpo", "loss_type bnpo"), ("real", "loss_type real")])
def test_what_ms_swift_averages_over_each_micro_batch(loss: str, said: str) -> None:
    assert per_micro_batch("ms_swift", {"loss_type": loss}) == said


@pytest.mark.parametrize(("settings", "loaded"), of("what_a_model_is_loaded_in_is_read_from_the_users_keys"))
def test_what_a_model_is_loaded_in_is_read_from_the_users_keys(settings: dict[str, Any], loaded: str) -> None:
    assert quantized(settings) == loaded


def test_a_study_is_told() -> None:
    """Else the rule would never speak."""
    request = ResolvedRequest(passthrough={"loss_type": "bnpo"}, rows_per_update=16, max_completion_length=8)
    resources = resources_for(Resources(), request, ModelFacts(), {})
    assert resources.per_micro_batch == "loss_type bnpo"
    assert resources.as_json()["per_micro_batch"] == "loss_type bnpo"
