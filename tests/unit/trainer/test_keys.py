"""A configuration written as TRL's keys is the same configuration when it is read again."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, Kind, defaults
from search_spaces.space import SearchSpace
from tests.support.properties import examples
from tests.support.trl_fields import FIELDS
from tests.support.trl_keys import to_keys
from trainer.child.frameworks.trl import engine as child_engine
from trainer.frameworks.common.values import KnobKeyError, variables
from trainer.frameworks.trl.keys import (
    ENGINE_SEAMS,
    ENVIRONMENT,
    KEYS,
    NESTED,
    SEAMS,
    SERVER,
    SUPPORTED,
    ZERO,
    acting,
    from_keys,
    model_keys,
    seams,
    training_keys,
    unsupported,
)
from trainer.frameworks.trl.keys import settings as rendered

MACHINES = {
    "cpu": Resources(rows_per_update=16),
    "single-gpu": Resources(gpus=1, device="cuda", compute_capability=(9, 0), rows_per_update=64),
}


@cache
def legal(preset: str) -> tuple[Configuration, ...]:
    space, machine = SearchSpace.load(preset), MACHINES[preset]
    baseline = space.complete({"micro_batch_size": 8, "num_generations": 8}, machine)
    return space.candidates(baseline, machine, same_learning=False)


def with_keys(configuration: Configuration) -> Configuration:
    """What TRL's file can say of it: knobs that act and are no seams, variables or of a server's launch."""
    values = {k: v for k, v in acting(configuration).items() if k not in SEAMS | SERVER | ENVIRONMENT}
    if values.get("precision") == "fp8":
        values["precision"] = "bf16"  # around the matrix products, which a seam makes FP8
    if not values.get("zero_stage"):
        values.pop("reduce_precision", None)
    return Configuration(values)


def read_back(configuration: Configuration) -> Configuration:
    """By the file, on a GPU; DeepSpeed's part says everything, so what it has by default was not set."""
    found = from_keys(to_keys(configuration, device="cuda"))
    extra = {k: v for k, v in found.items() if k not in configuration}
    assert set(extra) <= ZERO
    assert all(defaults("trl")[name] == value for name, value in extra.items())
    return Configuration({k: v for k, v in found.items() if k not in extra})


@pytest.mark.parametrize("preset", sorted(MACHINES))
@examples(60, 200)
@given(data=st.data())
def test_what_a_study_can_recommend_can_be_read_back(preset: str, data: st.DataObject) -> None:
    configuration = data.draw(st.sampled_from(legal(preset)))
    assert read_back(configuration) == with_keys(configuration)


def values_of(name: str) -> st.SearchStrategy[KnobValue]:
    knob = KNOBS[name]
    if knob.kind is Kind.BOOL:
        return st.booleans()
    if knob.kind is Kind.CHOICE:
        return st.sampled_from(knob.choices)
    if knob.kind is Kind.FLOAT:
        return st.floats(knob.bounds[0] or 0.0, knob.bounds[1] or 9.0)
    return st.integers(int(knob.bounds[0] or 0), int(knob.bounds[1] or 9))


@examples(100, 300)
@given(
    st.fixed_dictionaries({}, optional={name: values_of(name) for name in sorted(SUPPORTED)}),
    st.sampled_from([{}, {"rollout_engine": "vllm"}, {"zero_stage": 2}, {"zero_stage": 3}, {"fsdp": "fsdp2"}]),
)
def test_any_supported_configuration_can_be_read_back(
    values: dict[str, KnobValue], forced: dict[str, KnobValue]
) -> None:
    configuration = Configuration({**values, **forced})
    if unsupported(configuration):
        with pytest.raises(ValueError, match=r"TRL|weights would be rounded|only DeepSpeed"):
            to_keys(configuration)
        return
    assert read_back(configuration) == with_keys(configuration)
    keys = to_keys(configuration, device="cuda")
    assert set(keys) <= {*KEYS, "fsdp_config", *(key for key, _ in NESTED.values())}
    for key, value in keys.items():
        assert FIELDS[key].typed(value) == value


def test_no_supported_knob_is_lost_on_its_way_to_a_trial() -> None:
    """Each knob, alone at a value that is not TRL's own, changes what a trial is given, where it acts."""
    for name in sorted(SUPPORTED - SERVER):
        knob = KNOBS[name]
        here = {other: [v for v in wanted if v != "sglang"][-1] for other, wanted in knob.needs.items()}  # verl's
        if name == "reduce_precision":
            here["zero_stage"] = 2
        moved = [v for v in (*knob.choices, True, False, 2, 3, 0.25, 1 << 20) if differs(name, v, here)]
        assert moved, name
        plain_, changed = ((*rendered(Configuration(c), 64, 1), variables(c)) for c in (here, {**here, name: moved[0]}))
        assert plain_ != changed, (name, moved[0])


def differs(name: str, value: KnobValue, here: dict[str, KnobValue]) -> bool:
    try:
        parsed = KNOBS[name].parse(value)
    except SpaceError:
        return False
    return parsed != defaults("trl").get(name) and not unsupported({**here, name: parsed})


def test_what_rests_is_not_given_to_a_trial() -> None:
    """A resting knob may hold anything; given to TRL it would be an engine argument without an engine."""
    resting = {"kv_cache_memory_bytes": 1 << 30, "gpu_memory_utilization": 0.9, "sleep_level": 1, "zero_overlap": True}
    configuration = Configuration({"rollout_engine": "transformers", **resting})
    assert to_keys(configuration) == {"use_vllm": False}
    assert seams(configuration) == {}
    awake = configuration.with_(rollout_engine="vllm", sleep_level=0)
    assert to_keys(awake) == {"use_vllm": True, "vllm_gpu_memory_utilization": 0.9, "vllm_enable_sleep_mode": False}
    assert seams(awake) == {"kv_cache_memory_bytes": 1 << 30}
    with pytest.raises(ValueError, match="sleep_level 1"):
        to_keys(awake.with_(sleep_level=1))


def test_the_engine_prepares_for_the_longest_row_unless_told_another_length() -> None:
    """Left to itself it would prepare for the model's own limit, and fail where no cache holds that."""
    vllm = Configuration({"rollout_engine": "vllm"})
    assert training_keys(vllm, longest=96)["vllm_max_model_length"] == 96
    assert training_keys(vllm.with_(max_model_len=128), longest=96)["vllm_max_model_length"] == 128
    assert "vllm_max_model_length" not in training_keys(Configuration({"rollout_engine": "transformers"}), longest=96)


def test_a_servers_engine_is_not_told_twice() -> None:
    """Its arguments are on its own command line."""
    engine = {"max_num_seqs": 64, "enforce_eager": True, "logprob_rows": 2}
    server = Configuration({"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1, **engine})
    assert seams(server) == {"logprob_rows": 2}
    assert seams(server.with_(rollout_mode="colocate")) == engine


def test_both_sides_know_the_same_engine_knobs() -> None:
    """A knob the child does not know would be recorded as set and never act."""
    assert child_engine.ENGINE_KNOBS == ENGINE_SEAMS


def test_keys_are_of_the_dataclass_they_are_given_to() -> None:
    whole = {**legal("cpu")[0], "tf32": False, "torch_compile": False, "pad_to_multiple": 8, "empty_cache_steps": 0}
    assert {FIELDS[key].group for key in training_keys(whole)} == {"training"}
    assert {FIELDS[key].group for key in model_keys(whole)} == {"model"}
    assert "use_kernels" in model_keys({"hub_kernels": True})
    assert training_keys(whole)["torch_empty_cache_steps"] is None  # TRL refuses 0


def test_two_keys_of_one_knob_are_not_both_written() -> None:
    """An exported file with both would be refused by TRL."""
    for configuration in legal("cpu"):
        assert "generation_batch_size" not in to_keys(configuration)


def test_a_key_that_is_no_knobs_value_is_named() -> None:
    with pytest.raises(KnobKeyError, match="num_generations") as caught:
        from_keys({"num_generations": "many"})
    assert caught.value.key == "num_generations"
