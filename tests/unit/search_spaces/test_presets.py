"""Every preset is read, makes sense on the machine it is for, and asks TRL trials only for what they can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.legality import check
from search_spaces.space import SearchSpace, preset_names

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
ACTED_ON_BY_TRL = {
    *("micro_batch_size", "num_generations", "steps_per_generation", "gradient_checkpointing", "precision"),
    *("master_weights", "logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk", "attn_implementation"),
    *("optimizer", "rollout_engine"),
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
    space, machine = SearchSpace.load(name), MACHINES[name]
    found = space.candidates(baseline(name), machine, same_learning=False, limit=20_000)
    for knob, values in space.values.items():
        used = {c[knob] for c in found}
        assert {v for v in values if v != "accumulation"} <= used, knob


@pytest.mark.parametrize("name", ["cpu", "single-gpu"])
def test_small_presets_hold_only_what_trl_trials_act_on(name: str) -> None:
    space = SearchSpace.load(name)
    assert {*space.values, *space.fixed} <= ACTED_ON_BY_TRL
    assert "vllm" not in {*space.values.get("rollout_engine", ()), space.fixed.get("rollout_engine")}
    assert "fp8" not in space.values["precision"]
    assert all(str(v).startswith("adamw_torch") for v in space.values["optimizer"])


@pytest.mark.parametrize("framework", ["open_r1", "ms_swift"])
@pytest.mark.parametrize("name", ["node-8gpu", "multi-node"])
def test_node_presets_serve_the_other_frameworks(name: str, framework: str) -> None:
    machine = replace(MACHINES[name], framework=framework)
    told = SearchSpace.load(name).explain(baseline(name), machine)
    assert told.legal > 1000
    assert "framework_has_knob" not in told.removed


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_preset_travels_as_json(name: str) -> None:
    space = SearchSpace.load(name)
    assert SearchSpace.from_json(space.as_json()) == space
    assert space.description
