"""Splits of GPUs between training and a rollout server, and the failures of a server."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.domain import Configuration, Pool, Resources, Trial
from autotune.proposals import dominance
from autotune.proposals.proposer import make_proposer
from search_spaces.batch import training_gpus
from search_spaces.legality import check
from search_spaces.space import SearchSpace
from tests.support import factories

SERVED = Configuration(
    {
        "rollout_engine": "vllm",
        "rollout_mode": "server",
        "rollout_gpus": 2,
        "rollout_data_parallel_size": 2,
        "tensor_parallel_size": 1,
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 256,
        "enforce_eager": False,
        "micro_batch_size": 4,
        "steps_per_generation": 2,
        "gradient_accumulation_steps": 2,
        "gradient_checkpointing": True,
        "optimizer": "adamw_torch",
        "zero_stage": 2,
        "precision": "bf16",
        "master_weights": "bf16",
    }
)
SERVER_LOG = "/studies/1/trials/4/1/server.txt"


def failed(
    configuration: Configuration,
    phase: str | None,
    pool: Pool = Pool.DEVICE,
    log: str = "/studies/1/trials/4/1/log.txt",
) -> Trial:
    return factories.failed(4, factories.oom(phase=phase, pool=pool, log_path=log), configuration=configuration)


def rules_out(trial: Trial, configuration: Configuration) -> bool:
    return any(dominance.covers(region, configuration) for region in dominance.regions([trial], one_memory=False))


SERVER_SIDE: dict[str, Any] = {
    "micro_batch_size": 1,
    "steps_per_generation": 1,
    "gradient_checkpointing": False,
    "optimizer": "adamw_8bit",
    "zero_stage": 3,
    "master_weights": "fp32",
    "rollout_gpus": 1,
    "rollout_data_parallel_size": 1,
}
"""The trainer's own, and how many replicas there are: each holds the same."""


@pytest.mark.parametrize(
    ("phase", "log"),
    [("server", SERVER_LOG), ("engine", SERVER_LOG), ("capture", SERVER_LOG), ("generate", SERVER_LOG), ("server", "")],
)
@pytest.mark.parametrize("knob", sorted(SERVER_SIDE))
def test_the_servers_memory_is_no_matter_of_the_trainer(phase: str, log: str, knob: str) -> None:
    assert rules_out(failed(SERVED, phase, log=log), SERVED.with_(**{knob: SERVER_SIDE[knob]}))


@pytest.mark.parametrize(
    ("pool", "changes", "ruled"),
    [
        (Pool.DEVICE, {"gpu_memory_utilization": 0.95}, True),
        (Pool.DEVICE, {"gpu_memory_utilization": 0.6}, False),
        (Pool.DEVICE, {"max_num_seqs": 512}, True),
        (Pool.DEVICE, {"max_num_seqs": 64}, False),
        (Pool.DEVICE, {"tensor_parallel_size": 2}, False),
        (Pool.DEVICE, {"rollout_mode": "colocate", "rollout_gpus": 0}, False),
        (Pool.ROLLOUT_CACHE, {"gpu_memory_utilization": 0.6}, True),
        (Pool.ROLLOUT_CACHE, {"gpu_memory_utilization": 0.95}, False),
        (Pool.ROLLOUT_CACHE, {"tensor_parallel_size": 2}, False),
        (Pool.ROLLOUT_CACHE, {"micro_batch_size": 1, "zero_stage": 3, "rollout_gpus": 1}, True),
    ],
)
def test_what_else_bears_on_the_servers_side(pool: Pool, changes: dict[str, Any], ruled: bool) -> None:
    assert rules_out(failed(SERVED, "server", pool, SERVER_LOG), SERVED.with_(**changes)) is ruled


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


def test_after_a_server_that_did_not_fit_its_share_is_not_tried_beside_another_trainer() -> None:
    proposer = make_proposer(SPACE, BASELINE, FOUR, "random", seed=0)
    whole = SPACE.complete({**BASELINE, "rollout_engine": "vllm"}, FOUR)
    split = whole.with_(
        rollout_mode="server", rollout_gpus=1, gpu_memory_utilization=0.9, micro_batch_size=8,
        gradient_accumulation_steps=4, steps_per_generation=4,
    )  # fmt: skip
    made = [factories.finished(0, configuration=BASELINE), failed(split, "server", log=SERVER_LOG)]
    for number in range(2, 300):
        proposal = proposer.propose(made, number)
        if proposal is None:
            break
        made.append(factories.finished(number, configuration=proposal[0]))
    later = [t.configuration for t in made[2:] if t.configuration["rollout_mode"] == "server"]
    assert later
    assert all(c["gpu_memory_utilization"] == 0.3 for c in later if c["tensor_parallel_size"] == 1)
    assert any(c["gpu_memory_utilization"] == 0.9 for c in later if c["tensor_parallel_size"] == 2)
