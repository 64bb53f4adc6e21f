"""The recipes of an Open-R1 checkout: what is published here is what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.published import PUBLISHED, Published
from tests.support.openr1_trials import environment
from trainer.frameworks.open_r1.import_config import import_config

pytestmark = pytest.mark.frameworks

OURS = [one for one in PUBLISHED.values() if one.framework == "open_r1"]
LAUNCHED = {"rollout_mode", "rollout_gpus", "rollout_data_parallel_size", "gpu_memory_utilization", "zero_stage"}
"""Said by the README's commands, not by the recipe."""


@pytest.mark.parametrize("baseline", OURS, ids=[one.name for one in OURS])
def test_a_published_baseline_is_its_recipe(baseline: Published) -> None:
    root = Path(environment()[1])
    path = root / baseline.source.split(" ")[1].rstrip(";")
    stage = baseline.configuration["zero_stage"]
    accelerate = (root / "recipes" / "accelerate_configs" / f"zero{stage}.yaml").read_text(encoding="utf-8")
    found = import_config(path.read_text(encoding="utf-8"), path.name, accelerate=accelerate)
    knobs = {name: value for name, value in found.knobs.items() if not name.startswith("offload_")}
    assert knobs == {k: v for k, v in baseline.configuration.items() if k not in LAUNCHED - {"zero_stage"}}
    assert found.model == baseline.model
    assert found.dataset["dataset_name"] == baseline.dataset
    assert found.rewards == baseline.rewards
    assert (found.max_prompt_length, found.max_completion_length) == (
        baseline.max_prompt_length,
        baseline.max_completion_length,
    )
    settings = {**found.passthrough, "seed": 42}
    assert {key: settings[key] for key in baseline.workload} == dict(baseline.workload)
