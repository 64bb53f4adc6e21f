"""What the memory model says of training with Megatron, by formulas worked out by hand here."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Resources
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import PLACE, WHEN, Moment, Part, features
from autotune.proposals.times.features import batch_facts
from search_spaces.configuration import KnobValue, ModelFacts
from tests.support import factories

GIB = factories.GIB
N, L, W, V = 7_615_616_512, 28, 3584, 152_064
MODEL = ModelFacts(N, L, W, 28, 4, V, 32_768)
TASK = Task(
    Resources(gpus=8, device="cuda", device_memory=80 * GIB, host_memory=512 * GIB, framework="verl", model=MODEL),
    256, 512, 1536,
)  # fmt: skip
TOKENS = 2048
"""Of the longest row."""
EXPERTS = ModelFacts(
    30_000_000_000, 48, 2048, 32, 4, 151_936, experts=128, expert_parameters=28_000_000_000, chosen_experts=8
)
PLAIN: dict[str, KnobValue] = {
    "training_engine": "megatron", "micro_batch_size": 1, "gradient_accumulation_steps": 32,
}  # fmt: skip
SPLIT: dict[str, KnobValue] = {"training_tensor_parallel_size": 2, "pipeline_parallel_size": 2}
STATES = (Part.WEIGHTS, Part.GRADIENTS, Part.OPTIMIZER)


def part(which: Part, moment: Moment = Moment.UPDATE, task: Task = TASK, pool: int = 0, **knobs: KnobValue) -> float:
    found = features(task, [Configuration({**PLAIN, **knobs})])
    return float(found[pool, 0, WHEN[moment], PLACE[which]])


def test_weights_gradients_and_state_of_a_split_model() -> None:
    """2 + 4 + 12/d bytes of a parameter, d data-parallel ranks sharing the state (Megatron-LM)."""
    assert [part(each) for each in STATES] == pytest.approx([2 * N, 4 * N, 12 * N / 8])
    here = ((N - V * W) / 2 + V * W) / 2  # half of the layers and an embedding, half of each matrix
    assert [part(each, **SPLIT) for each in STATES] == pytest.approx([2 * here, 4 * here, 12 * here / 2])
    assert part(Part.OPTIMIZER, distributed_optimizer=False, **SPLIT) == pytest.approx(12 * here)
    assert part(Part.OPTIMIZER, Moment.STEP) == part(Part.OPTIMIZER)


def test_a_stage_with_layers_of_its_own_is_the_fullest() -> None:
    even, uneven = part(Part.WEIGHTS, **SPLIT), part(Part.WEIGHTS, first_stage_layers=20, **SPLIT)
    assert uneven - even == pytest.approx(2 * (N - V * W) * (20 - 14) / L / 2)


def test_ranks_that_share_a_sequence_share_the_optimizer_and_not_the_weights() -> None:
    split = part(Part.OPTIMIZER, sequence_parallel_size=2, **SPLIT)
    assert split == pytest.approx(part(Part.OPTIMIZER, **SPLIT))
    assert part(Part.WEIGHTS, sequence_parallel_size=8) == pytest.approx(2 * N)
    assert part(Part.ACTIVATIONS, sequence_parallel_size=8) == pytest.approx(part(Part.ACTIVATIONS) / 8)


def test_experts_are_shared_by_their_own_sizes() -> None:
    task = replace(TASK, resources=replace(TASK.resources, model=EXPERTS))
    dense = float((EXPERTS.parameters or 0) - (EXPERTS.expert_parameters or 0))
    for knobs, share in (
        ({"expert_parallel_size": 8}, 8),
        ({"expert_parallel_size": 4, "training_tensor_parallel_size": 2}, 8),
        ({"expert_parallel_size": 4, "training_tensor_parallel_size": 2, "expert_tensor_parallel_size": 1}, 4),
    ):
        tensor = int(knobs.get("training_tensor_parallel_size", 1))
        own = 28e9 / share
        assert part(Part.WEIGHTS, task=task, **knobs) == pytest.approx(2 * (dense / tensor + own))
        state = 12 * (dense / tensor / (8 / tensor) + own / (8 / share))
        assert part(Part.OPTIMIZER, task=task, **knobs) == pytest.approx(state)


def test_a_share_of_the_optimizer_is_on_the_host() -> None:
    whole, half = part(Part.OPTIMIZER), part(Part.OPTIMIZER, optimizer_offload_share=0.5)
    assert half == pytest.approx(whole / 2)
    moved = part(Part.OFFLOADED, pool=1, optimizer_offload_share=0.5) - part(Part.OFFLOADED, pool=1)
    assert moved == pytest.approx(8 * whole / 2), "of all ranks of the machine"


UNITS = 8 + 4 + 4 * 4 / 28
"""Bytes of a token and hidden unit that a layer keeps beside its MLP: Korthikanti et al. without what flash attention
and fused kernels do not keep."""


def inner() -> float:
    attention = 2 * W**2 * (1 + 4 / 28)
    return ((N - V * W) / L - attention) / (3 * W)


def test_activations_of_a_layer_are_those_of_korthikanti() -> None:
    each = TOKENS * (W * UNITS + 6 * inner())
    assert part(Part.ACTIVATIONS) == pytest.approx(L * each)
    assert part(Part.ACTIVATIONS, training_tensor_parallel_size=4) == pytest.approx(L * each / 4)
    apart = TOKENS * (W * 8 + (each / TOKENS - W * 8) / 4)
    found = part(Part.ACTIVATIONS, training_tensor_parallel_size=4, megatron_sequence_parallel=False)
    assert found == pytest.approx(L * apart), "norms and what goes into products is then on every rank"


def test_layers_that_are_computed_again_keep_their_input() -> None:
    each, kept = TOKENS * (W * UNITS + 6 * inner()), 2 * TOKENS * W
    full: dict[str, KnobValue] = {"recompute_granularity": "full", "recompute_method": "uniform"}
    assert part(Part.ACTIVATIONS, recompute_layers=1, **full) == pytest.approx(L * kept + each)
    assert part(Part.ACTIVATIONS, recompute_layers=4, **full) == pytest.approx(L / 4 * kept + 4 * each)
    full["recompute_method"] = "block"
    assert part(Part.ACTIVATIONS, recompute_layers=10, **full) == pytest.approx(10 * kept + 18 * each + each)
    selective = part(Part.ACTIVATIONS, recompute_granularity="selective")
    assert selective == part(Part.ACTIVATIONS), "flash attention writes no scores that could be computed again"


def test_the_first_stage_keeps_as_many_micro_batches_as_there_are_stages() -> None:
    """1F1B: all stages keep the activations of about a whole model (Narayanan et al.)."""
    one = part(Part.ACTIVATIONS, recompute_granularity="none")
    for stages in (2, 4):
        assert part(Part.ACTIVATIONS, pipeline_parallel_size=stages) == pytest.approx(one)
        turned = part(Part.ACTIVATIONS, pipeline_parallel_size=stages, virtual_pipeline_size=2)
        assert turned == pytest.approx(one * (1 + (stages - 1) / (stages * 2)))
    few = part(Part.ACTIVATIONS, pipeline_parallel_size=4, gradient_accumulation_steps=1)
    assert few < one / 3, "of one micro-batch"


def test_logits_are_shared_by_tensor_parallelism_and_on_the_last_stage() -> None:
    assert part(Part.LOGITS) == pytest.approx(8 * TOKENS * V)
    assert part(Part.LOGITS, training_tensor_parallel_size=4) == pytest.approx(2 * TOKENS * V)
    assert part(Part.LOGITS, pipeline_parallel_size=4) == 0, "the first stage is fuller"
    assert part(Part.LOGITS, Moment.LOGPROB, pipeline_parallel_size=4) == pytest.approx(6 * TOKENS * V)


def test_while_it_generates_weights_and_gradients_wait_on_the_host() -> None:
    away = {"rollout_offload_model": True, "rollout_offload_optimizer": True}
    assert [part(each, Moment.GENERATE, **away) for each in STATES] == [0, 0, 0]
    assert [part(each, Moment.SYNC, **away) > 0 for each in STATES] == [True, False, False]
    assert [part(each, Moment.UPDATE, **away) for each in STATES] == [part(each) for each in STATES]


def test_what_trains_with_torch_beside_it_is_counted_as_before() -> None:
    torch = Configuration({"micro_batch_size": 1, "gradient_accumulation_steps": 32})
    alone, mixed = features(TASK, [torch]), features(TASK, [torch, Configuration(PLAIN)])
    assert np.array_equal(alone[:, 0], mixed[:, 0])
    assert not np.array_equal(mixed[:, 0], mixed[:, 1])


def test_ranks_that_compute_the_same_rows_are_faster_less_what_stages_wait() -> None:
    def together(**knobs: KnobValue) -> float:
        return batch_facts(TASK, {**PLAIN, **knobs})["together"]

    assert together(training_tensor_parallel_size=4, sequence_parallel_size=2) == 8
    bubble = 1 + (4 - 1) / 32
    assert together(pipeline_parallel_size=4) == pytest.approx(4 / bubble)
    assert math.isclose(together(pipeline_parallel_size=4, virtual_pipeline_size=3), 4 / (1 + 3 / 96))


SWIFT = replace(TASK, resources=replace(TASK.resources, framework="ms_swift"), passthrough={"tuner_type": "full"})


def test_megatron_swift_holds_a_reference_model_and_shares_experts_and_tokens_less() -> None:
    """``swift/megatron/trainers/rlhf_mixin.py:31``; unset, experts are not split and ``sequence_parallel`` is off."""
    lora = replace(SWIFT, passthrough={"tuner_type": "lora", "lora_rank": 8})
    assert part(Part.WEIGHTS, task=SWIFT) == pytest.approx(2 * part(Part.WEIGHTS))
    assert part(Part.WEIGHTS, task=lora) == pytest.approx(part(Part.WEIGHTS))
    assert part(Part.GRADIENTS, task=SWIFT) == part(Part.GRADIENTS)
    apart = part(Part.ACTIVATIONS, training_tensor_parallel_size=4, megatron_sequence_parallel=False)
    assert part(Part.ACTIVATIONS, task=SWIFT, training_tensor_parallel_size=4) == pytest.approx(apart)
    task = replace(SWIFT, resources=replace(SWIFT.resources, model=EXPERTS))
    knobs: dict[str, KnobValue] = {"expert_parallel_size": 4, "training_tensor_parallel_size": 2}
    whole = part(Part.WEIGHTS, task=task, expert_tensor_parallel_size=1, **knobs)
    assert part(Part.WEIGHTS, task=task, **knobs) == pytest.approx(whole)


def test_megatron_swift_syncs_one_parameter_at_a_time_with_all_of_training_there() -> None:
    """``swift/megatron/trainers/rollout_mixin.py:739``: what waits on the host goes there after the sync."""
    colocated: dict[str, KnobValue] = {
        "rollout_engine": "vllm", "rollout_mode": "colocate", "rollout_offload_model": True,
        "rollout_offload_optimizer": True, **SPLIT,
    }  # fmt: skip
    assert [part(each, Moment.GENERATE, SWIFT, **colocated) for each in STATES] == [0, 0, 0]
    held = [part(each, Moment.UPDATE, SWIFT, **colocated) for each in STATES]
    assert [part(each, Moment.SYNC, SWIFT, **colocated) for each in STATES] == held
    assert part(Part.SYNC, Moment.SYNC, SWIFT, **colocated) == pytest.approx(2 * V * W)
