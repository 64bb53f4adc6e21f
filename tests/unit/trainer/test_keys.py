"""A configuration written as TRL's keys is the same configuration when it is read again."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import KNOBS, Kind
from search_spaces.space import SearchSpace
from tests.trl_fields import FIELDS
from trainer.frameworks.trl.keys import (
    KEYS,
    SEAMS,
    SUPPORTED,
    KnobKeyError,
    from_keys,
    model_keys,
    to_keys,
    training_keys,
    unsupported,
)

MACHINES = {
    "cpu": Resources(rows_per_update=16),
    "single-gpu": Resources(gpus=1, device="cuda", compute_capability=(9, 0), rows_per_update=64),
}


@cache
def legal(preset: str) -> tuple[Configuration, ...]:
    space, machine = SearchSpace.load(preset), MACHINES[preset]
    baseline = space.complete({"micro_batch_size": 8, "num_generations": 8}, machine)
    return space.candidates(baseline, machine, same_learning=False)


def without_seams(configuration: Configuration) -> Configuration:
    return Configuration({name: value for name, value in configuration.items() if name not in SEAMS})


@pytest.mark.parametrize("preset", sorted(MACHINES))
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_a_study_can_recommend_can_be_read_back(preset: str, data: st.DataObject) -> None:
    configuration = data.draw(st.sampled_from(legal(preset)))
    assert Configuration(from_keys(to_keys(configuration))) == without_seams(configuration)


def values_of(name: str) -> st.SearchStrategy[KnobValue]:
    knob = KNOBS[name]
    if knob.kind is Kind.BOOL:
        return st.booleans()
    if knob.kind is Kind.CHOICE:
        return st.sampled_from(knob.choices)
    return st.integers(int(knob.minimum or 0), int(knob.maximum or 9))


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional={name: values_of(name) for name in sorted(SUPPORTED)}))
def test_any_supported_configuration_can_be_read_back(values: dict[str, KnobValue]) -> None:
    configuration = Configuration(values)
    if unsupported(configuration):
        with pytest.raises(ValueError, match=r"TRL|weights would be rounded"):
            to_keys(configuration)
        return
    keys = to_keys(configuration)
    assert Configuration(from_keys(keys)) == without_seams(configuration)
    assert set(keys) <= set(KEYS)


def test_keys_are_of_the_dataclass_they_are_given_to() -> None:
    whole = {**legal("cpu")[0], "tf32": False, "torch_compile": False, "pad_to_multiple": 8, "empty_cache_steps": 0}
    assert {FIELDS[key].group for key in training_keys(whole)} == {"training"}
    assert {FIELDS[key].group for key in model_keys(whole)} == {"model"}
    assert training_keys(whole)["torch_empty_cache_steps"] is None  # TRL refuses 0
    for key, value in to_keys(whole).items():
        assert FIELDS[key].typed(value) == value


def test_two_keys_of_one_knob_are_not_both_written() -> None:
    """An exported file with both would be refused by TRL."""
    for configuration in legal("cpu"):
        assert "generation_batch_size" not in to_keys(configuration)


def test_a_key_that_is_no_knobs_value_is_named() -> None:
    with pytest.raises(KnobKeyError, match="num_generations") as caught:
        from_keys({"num_generations": "many"})
    assert caught.value.key == "num_generations"
