"""Splits of GPUs between training and a rollout server, as a search proposes them."""

from __future__ import annotations

import pytest

from autotune.domain import Configuration, Resources
from autotune.proposals.proposer import make_proposer
from search_spaces.batch import training_gpus
from search_spaces.legality import check
from search_spaces.space import SearchSpace
from tests.support import factories

FOUR = Resources(
    gpus=4, device="cuda", compute_capability=(9, 0), rows_per_update=96, num_generations=8, device_memory=80 << 30
)
SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "rollout_engine": ["transformers", "vllm"],
            "rollout_mode": ["colocate", "server"],
            "rollout_gpus": [1, 2, 3],
            "rollout_data_parallel_size": [1, 2, 3],
            "tensor_parallel_size": [1, 2],
            "micro_batch_size": [1, 2, 4, 8],
            "gpu_memory_utilization": [0.3, 0.9],
        }
    }
)
BASELINE = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 3, "num_generations": 8})


@pytest.mark.parametrize("sampler", ["tpe", "random", "grey", "grid"])
def test_splits_and_replicas_are_proposed_and_each_can_be_launched(sampler: str) -> None:
    proposer = make_proposer(SPACE, BASELINE, FOUR, sampler, seed=3)
    made = [factories.finished(0, configuration=BASELINE)]
    while len(made) < 400 and (proposal := proposer.propose(made, len(made))) is not None:
        made.append(factories.finished(len(made), configuration=proposal[0], cycle_seconds=10.0 + len(made) % 5))
    tried = [t.configuration for t in made[1:]]
    assert proposer.propose(made, len(made)) is None, "the whole space was tried"
    served = [c for c in tried if c["rollout_mode"] == "server"]
    splits = {(training_gpus(c, FOUR), c["rollout_gpus"], c["rollout_data_parallel_size"]) for c in served}
    assert splits == {(3, 1, 1), (2, 2, 2), (2, 2, 1), (1, 3, 3)}
    assert all(check(c, FOUR, BASELINE) == () for c in tried)
    early = [c for c in tried[:24] if c["rollout_mode"] == "server"]
    assert early, "a short study would never learn whether a split is faster"
