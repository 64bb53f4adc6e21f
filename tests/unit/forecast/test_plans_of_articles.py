"""The set-ups people write about, with the real models: bounds that physics sets, and order. No figure is asserted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from autotune.domain import Configuration
from autotune.forecast import planner
from autotune.forecast.accuracy import NONE
from autotune.forecast.answer import Accuracy, Machine, Plan
from autotune.forecast.architecture import architecture
from autotune.forecast.documents import needs_json, plan_json
from autotune.forecast.gpus import GPUS
from autotune.forecast.planner import FULL, LORA, OFFLOADED
from autotune.forecast.question import PlanRequest, Question
from autotune.forecast.with_models import forecasts_for
from autotune.proposals.forecasts import SURE
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for
from tests.support.published_models import PUBLISHED, QWEN3_30B_A3B, QWEN3_VL_8B

BF16 = {"l20": 119.5e12, "h100": 989.4e12}
"""Peak FLOP/s by data sheet."""
SERVER = {"rollout_engine": "vllm", "rollout_mode": "server", "tensor_parallel_size": 1}
BATCH = {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}


def question(
    config: Mapping[str, Any], gpu: str, gpus: int, nodes: int = 1, knobs: Mapping[str, Any] | None = None, **more: Any
) -> Question:
    machine = Machine(gpu, GPUS[gpu].memory, gpus, nodes)
    name = preset_for(gpus, nodes)
    space = SearchSpace.load(name) if knobs is None else SearchSpace.from_json({"knobs": dict(knobs)})
    wanted = PlanRequest("model", architecture(config), **more)
    return Question(wanted.load(machine), machine, GPUS[gpu], name, space)


def candidates(asked: Question) -> tuple[Configuration, ...]:
    return asked.space.candidates(asked.baseline(), asked.resources, same_learning=True)


def planned(asked: Question) -> Plan:
    return planner.plan(asked, forecasts_for, Accuracy(NONE))


def test_three_l20_train_and_one_generates_for_a_1_5b_model() -> None:
    config = PUBLISHED["Qwen2.5-1.5B"][0]
    asked = question(config, "l20", 4, knobs={**SERVER, "rollout_gpus": 1, "rollout_data_parallel_size": 1, **BATCH})
    found, forecasts = candidates(asked), forecasts_for(asked)
    assert len(found) >= 4
    assert all(c["rollout_gpus"] == 1 and c["rollout_mode"] == "server" for c in found)
    table = forecasts.table(found)
    ceiling = 3600 * 3 * BF16["l20"] / (6 * asked.load.architecture.parameters)
    rates = np.exp(table.log_rate)
    assert np.all(rates < ceiling), "three GPUs cannot train faster than their data sheet"
    assert np.all(rates > ceiling / 1000)
    assert table.fitting() > 0, "1.5B with all weights trained fits 48 GB: 16 bytes a parameter are 25 GB"
    for checkpointing in (True, False):
        pairs = zip(found, table.peaks.peak, strict=True)
        alike = [(c, peak) for c, peak in pairs if c["gradient_checkpointing"] is checkpointing]
        peaks = [peak for _, peak in sorted(alike, key=lambda pair: float(pair[0]["micro_batch_size"]))]
        assert peaks == sorted(peaks), "a larger micro-batch takes no less"


def test_a_7b_model_on_eight_h100_at_share_0_3_needs_its_state_shared_out() -> None:
    knobs = {
        "rollout_engine": "vllm", "gpu_memory_utilization": 0.3, "zero_stage": [0, 3], "micro_batch_size": [1, 2],
        "gradient_checkpointing": True,
    }  # fmt: skip
    asked = question(PUBLISHED["Qwen2.5-7B"][0], "h100", 8, knobs=knobs)
    found = candidates(asked)
    table = forecasts_for(asked).table(found)
    for stage, peak, fits in zip((c["zero_stage"] for c in found), table.peaks.peak, table.peaks.fits, strict=True):
        if stage == 0:
            assert peak > 12 * asked.load.architecture.parameters, "weights, gradients and two states in fp32, whole"
            assert fits < 0.05
        else:
            assert peak < 0.8 * GPUS["h100"].memory
    plan = planned(asked)
    assert plan.feasible
    assert all(p.configuration["zero_stage"] == 3 for p in plan.best)
    assert plan.baseline.fits < 0.05, "the defaults replicate everything"


def test_the_text_path_of_an_8b_vision_model_on_eight_nodes() -> None:
    knobs = {
        "rollout_engine": "vllm",
        "zero_stage": 3,
        "gpu_memory_utilization": [0.3, 0.5],
        "micro_batch_size": [1, 4],
    }
    many = question(QWEN3_VL_8B, "h100", 8, 8, knobs)
    few = question(QWEN3_VL_8B, "h100", 8, 1, knobs)
    assert many.load.architecture.parameters == PUBLISHED["Qwen3-8B"][1]
    wide, narrow = planned(many), planned(few)
    assert any("only its text part" in note for note in wide.notes)
    assert narrow.best[0].tokens_per_hour < wide.best[0].tokens_per_hour < 16 * narrow.best[0].tokens_per_hour
    assert many.resources.training_processes == 64


def test_a_32b_model_does_not_fit_one_gpu_and_needs_less_with_adapters() -> None:
    config = PUBLISHED["Qwen2.5-32B"][0]
    parameters = PUBLISHED["Qwen2.5-32B"][1]
    wanted = PlanRequest("32B", architecture(config), framework="ms_swift")  # it sends an adapter's weights in batches
    found = planner.needs(wanted, (GPUS["h100"],), forecasts_for)
    by_way = {need.how: need for need in found.needs}
    assert set(by_way) == {FULL, OFFLOADED, LORA}
    full, lora = by_way[FULL].machine, by_way[LORA].machine
    assert lora is not None
    if full is not None:
        assert full.total * full.memory > 12 * parameters, "weights and two states in fp32 have to be somewhere"
        assert lora.total <= full.total
    for need in found.needs:
        if need.machine is not None and need.found is not None:
            assert need.found.fits >= SURE
            assert need.machine.total * need.machine.memory > 2 * parameters
    assert needs_json(found)["predicted"] is True


@pytest.mark.parametrize("gpu", ["l20", "h100"])
def test_a_smaller_model_is_faster_and_takes_less(gpu: str) -> None:
    knobs = {"rollout_engine": "vllm", "micro_batch_size": [1, 2], "gradient_checkpointing": True}
    small, large = (question(PUBLISHED[n][0], gpu, 1, knobs=knobs) for n in ("Qwen2.5-0.5B", "Qwen2.5-1.5B"))
    one, other = (forecasts_for(q).table(candidates(q)) for q in (small, large))
    assert np.all(one.log_rate > other.log_rate)
    assert np.all(one.peaks.peak < other.peaks.peak)


def test_experts_take_the_memory_of_all_and_the_time_of_some() -> None:
    knobs = {"rollout_engine": "vllm", "zero_stage": 3, "micro_batch_size": [1, 2]}
    experts = question(QWEN3_30B_A3B, "h200", 8, knobs=knobs)
    dense = question({**PUBLISHED["Qwen2.5-32B"][0]}, "h200", 8, knobs=knobs)
    some, whole = (forecasts_for(q).table(candidates(q)) for q in (experts, dense))
    assert np.all(some.log_rate > whole.log_rate)
    assert np.all(some.peaks.peak > 12 * experts.load.architecture.parameters / 8)


def test_everything_a_plan_says_is_marked_predicted() -> None:
    asked = question(
        PUBLISHED["Qwen2.5-1.5B"][0], "h100", 1, knobs={"rollout_engine": ["vllm", "transformers"], **BATCH}
    )
    plan = planned(asked)
    document = plan_json(plan)
    assert document["predicted"] is True
    assert all(found["predicted"] is True for found in [*document["best"], document["framework_defaults"]])
    assert document["accuracy"]["sentence"] == "not yet compared with a recorded table on this GPU"
    rates = [found.tokens_per_hour for found in plan.best]
    assert all(first >= 0.998 * second for first, second in itertools.pairwise(rates))
    for found in plan.best:
        assert found.low < found.tokens_per_hour < found.high
        assert sum(found.parts.values()) == pytest.approx(found.peak, rel=0.01)
        assert sum(found.phases.values()) == pytest.approx(found.cycle_s, rel=0.25)


def test_all_weights_are_trained_unless_adapters_are_asked_for() -> None:
    knobs = {"rollout_engine": "vllm", "micro_batch_size": [1, 2], "gradient_checkpointing": True}
    config = PUBLISHED["Qwen2.5-1.5B"][0]
    peaks = {}
    for framework in ("trl", "ms_swift"):
        for rank in (None, 16):
            asked = question(config, "h100", 1, knobs=knobs, framework=framework, lora_rank=rank)
            peaks[framework, rank] = float(forecasts_for(asked).table(candidates(asked)).peaks.peak.min())
        assert peaks[framework, 16] < peaks[framework, None]
