"""Every preset is read, makes sense on the machine it is for, and asks TRL trials only for what they can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.legality import check
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_names
from trainer.frameworks.trl.keys import SUPPORTED, unsupported

CPU = Resources(cpu_cores=2, rows_per_update=16, num_generations=8, max_prompt_length=64, max_completion_length=64)
GPU = Resources(
    gpus=1,
    device="cuda",
    compute_capability=(9, 0),
    rows_per_update=64,
    model=ModelFacts(attention_heads=16, max_positions=32768),
)
MACHINES = {
    "cpu": CPU,
    "single-gpu": GPU,
    "node-8gpu": replace(GPU, gpus=8, rows_per_update=512),
    "multi-node": replace(GPU, gpus=8, nodes=4, rows_per_update=1024),
}


def baseline(name: str) -> Configuration:
    machine = MACHINES[name]
    ranks = machine.training_processes
    engine: dict[str, KnobValue] = {"rollout_engine": "vllm"} if name in ("node-8gpu", "multi-node") else {}
    precision: dict[str, KnobValue] = {"precision": "fp32"} if name == "cpu" else {}
    rows = machine.rows_per_update or 0
    return Configuration(
        {"micro_batch_size": 8, "gradient_accumulation_steps": rows // (8 * ranks), **engine, **precision}
    )


def of_trl(name: str) -> SearchSpace:
    """The preset without what other frameworks alone have."""
    found, left = SearchSpace.load(name).fitted("trl", SUPPORTED)
    assert left == (), "what TRL lacks may be left unset"
    return found


def test_each_preset_has_a_machine_here() -> None:
    assert set(preset_names()) == set(MACHINES)


@pytest.mark.parametrize("name", sorted(MACHINES))
@pytest.mark.parametrize("same_learning", [True, False])
def test_a_preset_has_legal_candidates(name: str, same_learning: bool) -> None:
    space, machine, own = SearchSpace.load(name), MACHINES[name], baseline(name)
    found = space.candidates(own, machine, same_learning=same_learning, limit=2000)
    complete = space.complete(own, machine)
    assert len(found) >= 20
    assert len(found) == len(set(found))
    assert all(check(c, machine, complete) == () for c in found[:: max(1, len(found) // 50)])
    assert check(complete, machine, complete) == ()


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_value_of_a_preset_can_be_legal(name: str) -> None:
    """A value no legal combination has would only make the space look larger."""
    space, machine = of_trl(name), MACHINES[name]
    found = space.candidates(baseline(name), machine, same_learning=False, limit=20_000)
    assert space.values_in(machine).keys() == space.values.keys()
    for knob, values in space.values_in(machine).items():
        used = {c.get(knob, UNSET) for c in found}
        assert {v for v in values if v != "accumulation"} <= used, knob


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_presets_hold_only_what_trl_trials_act_on(name: str) -> None:
    """A knob TRL cannot be told would be searched for nothing, and `autotune start` would refuse the preset."""
    space, machine = of_trl(name), MACHINES[name]
    assert {*space.values, *space.fixed} <= SUPPORTED
    found = space.candidates(baseline(name), machine, same_learning=False, limit=2000)
    assert [c for c in found if unsupported(c)] == []
    assert all(str(v).startswith("adamw_torch") for v in space.values.get("optimizer", ()))


def test_without_vllm_the_gpu_preset_still_searches_transformers_generation() -> None:
    """Its memory share is then continuous batching's; vLLM's own knobs rest instead of multiplying the space."""
    machine = replace(GPU, software={"torch": "2.13.0", "trl": "1.16.0", "flash_attn": "2.8"})
    found = SearchSpace.load("single-gpu").candidates(baseline("single-gpu"), machine, same_learning=False)
    assert {c["rollout_engine"] for c in found} == {"transformers"}
    assert {c["gpu_memory_utilization"] for c in found} == {0.3}
    assert {c["precision"] for c in found} == {"bf16", "fp32"}, "fp8 needs torchao"
    batched = [c for c in found if c["continuous_batching"]]
    assert {c["continuous_batching_memory"] for c in batched} == {0.3, 0.5, 0.7}
    assert all(c["master_weights"] == c["precision"] for c in batched)
    assert {c["continuous_batching_memory"] for c in found if not c["continuous_batching"]} == {0.5}


@pytest.mark.parametrize(("capability", "expected"), [((8, 6), False), ((8, 9), True)])
def test_fp8_is_searched_where_the_gpu_has_it(capability: tuple[int, int], expected: bool) -> None:
    machine = replace(GPU, compute_capability=capability)
    found = SearchSpace.load("single-gpu").candidates(baseline("single-gpu"), machine, same_learning=False)
    assert any(c["precision"] == "fp8" for c in found) is expected
    assert any(c["kv_cache_dtype"] == "fp8" or c["rollout_quantization"] == "fp8" for c in found) is expected


def test_same_learning_keeps_what_is_learned() -> None:
    """The headline gain may not come from another precision, cache type or group size."""
    space = SearchSpace.load("single-gpu")
    own = space.complete(baseline("single-gpu"), GPU)
    found = space.candidates(own, GPU, same_learning=True, limit=5000)
    apart = ("precision", "master_weights", "kv_cache_dtype", "rollout_quantization", "num_generations")
    assert {tuple(c[name] for name in apart) for c in found} == {tuple(own[name] for name in apart)}
    assert {c["rollout_engine"] for c in found} == {"vllm", "transformers"}


@pytest.mark.parametrize(
    ("name", "framework"),
    [("node-8gpu", "open_r1"), ("node-8gpu", "ms_swift"), ("multi-node", "open_r1"), ("multi-node", "ms_swift")],
)
def test_node_presets_serve_the_other_frameworks(name: str, framework: str) -> None:
    machine = replace(MACHINES[name], framework=framework)
    explanation = SearchSpace.load(name).explain(baseline(name), machine)
    assert explanation.legal > 1000
    assert "framework_has_knob" not in explanation.removed


@pytest.mark.parametrize("name", ["node-8gpu", "multi-node"])
@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_open_r1_has_both_rollouts_of_vllm(name: str, mode: str) -> None:
    machine, space = replace(MACHINES[name], framework="open_r1"), SearchSpace.load(name)
    own = baseline(name).with_(rollout_mode="colocate")
    found = space.candidates(own, machine, same_learning=False, limit=5000)
    there = [c for c in found if c["rollout_engine"] == "vllm" and c["rollout_mode"] == mode]
    assert there
    assert not {"max_num_seqs", "max_num_batched_tokens"} & {name for c in there for name in c}
    assert all(check(c, machine, space.complete(own, machine)) == () for c in there[:: max(1, len(there) // 20)])


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_preset_travels_as_json(name: str) -> None:
    space = SearchSpace.load(name)
    assert SearchSpace.from_json(space.as_json()) == space
    assert space.description
