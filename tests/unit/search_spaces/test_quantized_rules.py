"""What vLLM cannot be given: packed weights, heads of a size its CPU attention lacks, expandable segments when old."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.legality import check
from search_spaces.legality.rollout_rules import CPU_HEAD_SIZES
from search_spaces.own_keys import quantized
from search_spaces.space import SearchSpace

BATCH: dict[str, KnobValue] = {"micro_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8}
COLOCATED: dict[str, KnobValue] = {**BATCH, "rollout_engine": "vllm", "rollout_mode": "colocate"}
SERVER: dict[str, KnobValue] = {**BATCH, "rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}
QUANTIZING = ("trl", "open_r1", "ms_swift")


def gpus(framework: str, loaded: str = "", **more: Any) -> Resources:
    return Resources(gpus=2, device="cuda", framework=framework, quantized=loaded, **more)


def broken(values: dict[str, KnobValue], resources: Resources) -> dict[str, str]:
    return {v.rule: v.sentence for v in check(Configuration(values), resources)}


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ({"load_in_4bit": True, "use_peft": True}, "4 bit"),
        ({"load_in_8bit": True}, "8 bit"),
        ({"quant_method": "bnb", "quant_bits": 4}, "4 bit"),
        ({"quant_method": "bnb", "quant_bits": "8"}, "8 bit"),
        ({"quant_method": "hqq", "quant_bits": 4}, ""),
        ({"load_in_4bit": False, "quant_bits": None}, ""),
        ({}, ""),
    ],
)
def test_what_a_model_is_loaded_in_is_read_from_the_users_keys(settings: dict[str, Any], loaded: str) -> None:
    assert quantized(settings) == loaded


@pytest.mark.parametrize(
    ("framework", "loaded", "values", "legal"),
    [
        ("trl", "4 bit", SERVER, False),
        ("trl", "8 bit", SERVER, False),
        ("open_r1", "4 bit", SERVER, False),
        ("trl", "4 bit", COLOCATED, True),
        ("trl", "8 bit", COLOCATED, False),
        ("ms_swift", "4 bit", COLOCATED, True),
        ("ms_swift", "8 bit", COLOCATED, False),
        ("open_r1", "4 bit", COLOCATED, False),
        ("open_r1", "8 bit", COLOCATED, False),
        *((framework, "", values, True) for framework in QUANTIZING for values in (SERVER, COLOCATED)),
        *((framework, loaded, BATCH, True) for framework in QUANTIZING for loaded in ("4 bit", "8 bit")),
    ],
)
def test_packed_weights_reach_only_an_engine_built_for_them(
    framework: str, loaded: str, values: dict[str, KnobValue], legal: bool
) -> None:
    found = broken(values, gpus(framework, loaded))
    assert set(found) == (set() if legal else {"quantized_weights"})
    key = f"quant_bits {loaded[:1]}" if framework == "ms_swift" else f"load_in_{loaded[:1]}bit"
    assert legal or found["quantized_weights"].startswith(f"{key} cannot be used with rollout_")


def test_the_way_out_is_named_and_legal() -> None:
    """What acts by the changed knob rests with it, or nothing would ever be named beside a split."""
    (found,) = check(Configuration(SERVER), gpus("trl", "4 bit"))
    assert found.nearest == (("rollout_mode", "colocate"), ("rollout_engine", "transformers"))
    ways = "rollout_mode colocate without rollout_gpus, or rollout_engine transformers without rollout_mode and rollout"
    assert f"nearest legal: {ways}_gpus." in found.sentence
    assert "TRL sends packed weights, which only a colocated engine takes" in found.sentence
    (eight,) = check(Configuration(SERVER), gpus("trl", "8 bit"))
    assert eight.nearest == (("rollout_engine", "transformers"),)


def test_packed_shards_cannot_be_merged() -> None:
    values = {**COLOCATED, "fsdp": "fsdp2"}
    (found,) = check(Configuration(values), gpus("trl", "4 bit"))
    assert found.rule == "quantized_shards"
    assert ("fsdp", "none") in found.nearest
    assert broken(values, gpus("trl")) == {}
    assert broken({**BATCH, "fsdp": "fsdp2"}, gpus("trl", "4 bit")) == {}


@given(st.integers(1, 600))
def test_vllm_on_a_cpu_has_some_head_sizes(size: int) -> None:
    machine = Resources(model=ModelFacts(head_size=size))
    found = broken({**BATCH, "rollout_engine": "vllm"}, machine)
    assert set(found) == (set() if size in CPU_HEAD_SIZES else {"cpu_head_size"})
    assert broken(BATCH, machine) == {}
    assert broken(COLOCATED, gpus("trl", model=ModelFacts(head_size=size))) == {}


@pytest.mark.parametrize(
    ("facts", "legal"),
    [
        (ModelFacts(hidden_size=64, attention_heads=4), False),
        (ModelFacts(hidden_size=64, attention_heads=4, head_size=32), True),
        (ModelFacts(hidden_size=576, attention_heads=9), True),
        (ModelFacts(hidden_size=64), True),
        (ModelFacts(), True),
    ],
)
def test_the_head_size_is_stated_or_follows(facts: ModelFacts, legal: bool) -> None:
    found = broken({**BATCH, "rollout_engine": "vllm"}, Resources(model=facts))
    assert set(found) == (set() if legal else {"cpu_head_size"})
    if not legal:
        assert "have 16 values each, and vLLM on a CPU takes 32, 64, 80" in found["cpu_head_size"]
        assert "nearest legal: rollout_engine transformers" in found["cpu_head_size"]


@pytest.mark.parametrize(
    ("framework", "software", "legal"),
    [
        ("trl", {"vllm": "0.20.0"}, False),
        ("trl", {"vllm": "0.20.1"}, True),
        ("trl", {"vllm": "0.31.0+cu129"}, True),
        ("trl", {"torch": "2.13.0"}, None),
        ("trl", {}, True),
        ("verl", {"vllm": "0.18.0"}, False),
        ("verl", {}, True),
        ("ms_swift", {"vllm": "0.8.5"}, True),
        ("ms_swift", {}, True),
    ],
)
def test_old_vllm_cannot_sleep_on_expandable_segments(
    framework: str, software: dict[str, str], legal: bool | None
) -> None:
    values = {**COLOCATED, "expandable_segments": True, "sleep_level": 2, "tensor_parallel_size": 1}
    found = broken(values, gpus(framework, software=software))
    assert ("expandable_segments" in found) is (legal is False)
    assert "expandable_segments" not in broken({**values, "sleep_level": 0}, gpus(framework, software=software))


@pytest.mark.parametrize("loaded", ["4 bit", "8 bit"])
@pytest.mark.parametrize("framework", QUANTIZING)
def test_no_candidate_gives_vllm_what_it_cannot_take(framework: str, loaded: str) -> None:
    space = SearchSpace.from_json(
        {
            "knobs": {
                "rollout_engine": ["vllm", "transformers"],
                "rollout_mode": ["colocate", "server"],
                "rollout_gpus": [1],
                "micro_batch_size": [4, 8],
            }
        }
    )
    resources = gpus(framework, loaded, rows_per_update=16, num_generations=8)
    baseline = space.complete({**BATCH, "rollout_engine": "transformers"}, resources)
    found = space.candidates(baseline, resources, same_learning=True)
    assert found
    assert all(check(one, resources, baseline) == () for one in found)
    counted = space.count(baseline, resources, same_learning=True)
    assert counted.legal == len(found)
    plain = space.count(baseline, gpus(framework, rows_per_update=16, num_generations=8), same_learning=True)
    takes_all = (framework, loaded) == ("ms_swift", "4 bit")
    assert (plain.legal == counted.legal) if takes_all else (plain.legal > counted.legal)
