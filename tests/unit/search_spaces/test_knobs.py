"""The catalogue is what the other rooms rely on: names, classes, directions, defaults."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import (
    FRAMEWORKS,
    KNOBS,
    Effect,
    Kind,
    Knob,
    Reach,
    defaults,
    effect_of_change,
    effects_of_change,
)
from search_spaces.legality.knob_rules import WORKLOAD_KEYS

PHASES = {"generate", "reward", "logprob", "update", "sync", "wait", "idle"}
EACH = pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda k: k.name)


@EACH
def test_words_come_from_the_closed_lists(knob: Knob) -> None:
    assert KNOBS[knob.name] is knob
    assert knob.frameworks
    assert set(knob.frameworks) <= set(FRAMEWORKS)
    assert knob.phases <= PHASES
    for effect in knob.memory:
        assert effect.pool in {"device", "host", "rollout_cache"}
        assert effect.phases <= PHASES
        assert effect.direction in {-1, 0, 1}
    assert knob.summary
    assert not knob.summary.endswith(".")
    assert knob.name not in WORKLOAD_KEYS


@EACH
def test_a_framework_default_is_a_value_of_the_knob(knob: Knob) -> None:
    for setting in knob.frameworks.values():
        assert setting.key
        if setting.default is not None:
            assert knob.parse(setting.default) == setting.default
        if setting.follows:
            assert setting.follows in KNOBS


@EACH
def test_what_numerics_and_learning_are_kept_at_is_known(knob: Knob) -> None:
    """Same learning means the baseline's value; a baseline that does not set the knob has the default."""
    if knob.effect is not Effect.SPEED:
        assert all(setting.default is not None or setting.follows for setting in knob.frameworks.values())


@EACH
def test_a_knob_that_can_be_off_has_a_place_to_rest(knob: Knob) -> None:
    for other, wanted in knob.needs.items():
        assert other in KNOBS
        assert all(KNOBS[other].parse(value) == value for value in wanted)
    if knob.needs:
        assert all(knob.inactive_value(framework) is not None for framework in knob.frameworks)


@EACH
def test_a_chain_of_needs_is_written_out(knob: Knob) -> None:
    """Resting looks one step far, so what a needed knob needs must be needed too."""
    for other in knob.needs:
        assert set(KNOBS[other].needs) <= set(knob.needs)


@EACH
def test_a_direction_has_something_to_be_compared_along(knob: Knob) -> None:
    if knob.kind is Kind.CHOICE and any(effect.direction for effect in knob.memory):
        assert len(knob.order) > 1


@EACH
def test_a_pool_has_one_direction_in_each_phase(knob: Knob) -> None:
    for phase in PHASES:
        for pool in ("device", "host", "rollout_cache"):
            found = {e.direction for e in knob.memory if e.pool == pool and (phase in e.phases or not e.phases)}
            assert len(found) <= 1


def directions(name: str, pool: str, phase: str) -> set[int]:
    return {e.direction for e in KNOBS[name].memory if e.pool == pool and (not e.phases or phase in e.phases)}


@pytest.mark.parametrize(
    ("name", "pool", "phase", "expected"),
    [
        ("micro_batch_size", "device", "update", {1}),
        ("micro_batch_size", "host", "logprob", {1}),
        ("micro_batch_size", "device", "generate", {1}),
        ("micro_batch_size", "device", "reward", set()),
        ("steps_per_generation", "device", "generate", {1}),
        ("steps_per_generation", "device", "update", set()),
        ("gradient_accumulation_steps", "device", "update", set()),
        ("gradient_checkpointing", "device", "update", {-1}),
        ("gpu_memory_utilization", "rollout_cache", "generate", {-1}),
        ("gpu_memory_utilization", "device", "update", {1}),
        ("logprob_token_chunk", "device", "update", {1}),
        ("logprob_rows", "device", "logprob", {1}),
        ("logprob_rows", "device", "update", set()),
        ("zero_stage", "device", "update", {0}),
        ("master_weights", "host", "sync", {1}),
        ("sleep_level", "device", "update", {-1}),
    ],
)
def test_memory_directions(name: str, pool: str, phase: str, expected: set[int]) -> None:
    assert directions(name, pool, phase) == expected


def test_fp8_is_not_compared_with_other_precisions() -> None:
    """Emulated, it needs more than bf16; real, it may need less."""
    assert "fp8" in KNOBS["precision"].choices
    assert KNOBS["precision"].order == ("bf16", "fp16", "fp32")


def test_chunks_are_seams_in_trl() -> None:
    chunks = ("logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk")
    assert {KNOBS[name].frameworks["trl"].reach for name in chunks} == {Reach.SEAM}
    assert KNOBS["micro_batch_size"].frameworks["trl"].reach is Reach.NATIVE
    assert KNOBS["enforce_eager"].frameworks["trl"].reach is Reach.SEAM
    assert KNOBS["enforce_eager"].frameworks["verl"].reach is Reach.NATIVE


def test_frameworks_differ_in_their_defaults() -> None:
    assert defaults("trl")["gpu_memory_utilization"] == 0.3
    assert defaults("ms_swift")["gpu_memory_utilization"] == 0.9
    assert defaults("open_r1")["rollout_mode"] == "server"
    assert defaults("verl")["num_generations"] == 1


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("adamw_torch", "adamw_torch", Effect.SPEED),
        ("adamw_torch", "adamw_torch_fused", Effect.SPEED),
        ("adamw_torch", "adamw_8bit", Effect.NUMERICS),
        ("adamw_torch", "adafactor", Effect.LEARNING),
        (None, "adamw_torch", Effect.LEARNING),
    ],
)
def test_an_optimizer_of_the_same_mathematics_changes_speed_only(
    before: str | None, after: str, expected: Effect
) -> None:
    assert KNOBS["optimizer"].effect_between(before, after) is expected


def test_the_effect_of_a_change_is_that_of_the_strongest_knob() -> None:
    baseline: dict[str, KnobValue] = {"micro_batch_size": 2, "num_generations": 8, "precision": "fp32"}
    assert effect_of_change({**baseline, "micro_batch_size": 4}, baseline, "trl") is Effect.SPEED
    assert effect_of_change({**baseline, "precision": "bf16"}, baseline, "trl") is Effect.NUMERICS
    assert effect_of_change({**baseline, "precision": "bf16", "num_generations": 4}, baseline, "trl") is Effect.LEARNING
    assert effect_of_change({**baseline, "gradient_checkpointing": True}, baseline, "trl") is Effect.SPEED
    assert effect_of_change({**baseline, "kv_cache_dtype": "auto"}, baseline, "trl") is Effect.SPEED, "the default"
    assert effect_of_change({**baseline, "something": 1}, baseline, "trl") is Effect.LEARNING


def test_generations_are_counted_by_update() -> None:
    """The same number of micro-batches is another share of an update where the accumulation differs."""
    baseline = Configuration({"gradient_accumulation_steps": 4, "steps_per_generation": 4})
    smaller = baseline.with_(gradient_accumulation_steps=2, steps_per_generation=2)
    assert effects_of_change(smaller, baseline, "trl") == {"gradient_accumulation_steps": Effect.SPEED}
    fewer = baseline.with_(gradient_accumulation_steps=8)
    assert effects_of_change(fewer, baseline, "trl")["steps_per_generation"] is Effect.LEARNING
    assert effects_of_change(baseline, Configuration({"gradient_accumulation_steps": 4}), "trl") == {}
    word = baseline.with_(steps_per_generation="accumulation")
    assert effects_of_change(word, baseline, "trl") == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("micro_batch_size", 0),
        ("micro_batch_size", True),
        ("micro_batch_size", 2.0),
        ("micro_batch_size", "2"),
        ("micro_batch_size", "accumulation"),
        ("steps_per_generation", "all"),
        ("gradient_checkpointing", 1),
        ("gradient_checkpointing", "true"),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.2),
        ("gpu_memory_utilization", float("nan")),
        ("gpu_memory_utilization", float("inf")),
        ("precision", "int4"),
        ("precision", None),
        ("attn_implementation", ""),
        ("attn_implementation", ["sdpa"]),
        ("zero_stage", 10**400),
    ],
)
def test_a_value_outside_the_domain_is_refused_saying_what_was_expected(name: str, value: object) -> None:
    with pytest.raises(SpaceError, match=r"^expected .*, got .+") as caught:
        KNOBS[name].parse(value)
    assert len(str(caught.value)) < 300


def test_numbers_keep_the_knobs_own_type() -> None:
    """1 and 1.0 have different canonical texts, so a share must always be a float."""
    assert repr(KNOBS["gpu_memory_utilization"].parse(0.5)) == "0.5"
    assert KNOBS["steps_per_generation"].parse("accumulation") == "accumulation"
    assert KNOBS["attn_implementation"].parse("kernels-community/flash-attn") == "kernels-community/flash-attn"
