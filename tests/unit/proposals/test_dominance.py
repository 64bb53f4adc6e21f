"""What a memory failure rules out, and above all what it does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.domain import Configuration, FailureReason, Outcome, Pool, Trial
from autotune.proposals import dominance
from autotune.proposals.candidate_grid import CandidateGrid
from search_spaces.knobs import Effect, Kind, Knob, MemoryEffect
from tests.support import factories
from tests.support.not_none import not_none

Direction = Literal[-1, 0, 1]


def knob(name: str, *memory: tuple[str, str, Direction], order: tuple[str, ...] = ()) -> Knob:
    """A knob with effects as (pool, phases separated by blanks or empty for any, direction)."""
    effects = tuple(MemoryEffect(pool, frozenset(phases.split()), direction) for pool, phases, direction in memory)
    kind = Kind.CHOICE if order else Kind.INT
    return Knob(
        name=name,
        kind=kind,
        effect=Effect.SPEED,
        phases=frozenset(),
        memory=effects,
        frameworks={},
        summary="",
        order=order,
    )


SMALL = {
    k.name: k
    for k in (
        knob("micro_batch_size", ("device", "generate logprob update", 1)),
        knob("steps_per_generation", ("device", "generate", 1), ("rollout_cache", "generate", 1)),
        knob("gradient_accumulation_steps"),
        knob("checkpointing", ("device", "update", -1)),
        knob("precision", ("device", "", 1), order=("bf16", "fp32")),
        knob("zero_stage", ("device", "", 0)),
        knob("share", ("rollout_cache", "", -1), ("device", "", 1)),
        knob("offload", ("device", "", -1), ("host", "", 1)),
        knob("workers", ("host", "reward", 1)),
        knob("rounding"),
    )
}

VALUES: dict[str, tuple[Any, ...]] = {
    "micro_batch_size": (1, 2, 4),
    "steps_per_generation": (1, 2, 4),
    "gradient_accumulation_steps": (1, 8),
    "checkpointing": (False, True),
    "precision": ("bf16", "fp32"),
    "zero_stage": (0, 2, 3),
    "share": (0.3, 0.5, 0.9),
    "offload": (False, True),
    "workers": (0, 2),
    "rounding": ("up", "down"),
}

configurations = st.fixed_dictionaries({n: st.sampled_from(v) for n, v in VALUES.items()}).map(Configuration)
places = st.tuples(
    st.sampled_from((*Pool, None)),
    st.sampled_from(("generate", "update", "logprob", "reward", "idle", "load", "engine", "first_batch", None)),
)


def oom(configuration: Configuration, phase: str | None, pool: Pool | None, number: int = 4) -> Trial:
    return factories.failed(number, factories.oom(phase=phase, pool=pool), configuration=configuration)


@pytest.fixture(autouse=True, scope="module")
def small_catalogue() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dominance, "KNOBS", SMALL)
        yield


def rules_out(failed: Trial, configuration: Configuration, *, one_memory: bool = False) -> bool:
    region = dominance.region(failed, one_memory=one_memory)
    return region is not None and dominance.covers(region, configuration)


BASE = Configuration({name: values[0] for name, values in VALUES.items()}).with_(
    micro_batch_size=2, steps_per_generation=2, share=0.5
)


@pytest.mark.parametrize(
    ("phase", "pool", "changes", "ruled"),
    [
        ("update", Pool.DEVICE, {}, True),
        ("update", Pool.DEVICE, {"micro_batch_size": 4}, True),
        ("update", Pool.DEVICE, {"micro_batch_size": 1}, False),
        ("update", Pool.DEVICE, {"micro_batch_size": 4, "checkpointing": True}, False),
        ("update", Pool.DEVICE, {"precision": "fp32"}, True),
        ("update", Pool.DEVICE, {"micro_batch_size": 4, "zero_stage": 3}, False),
        ("update", Pool.DEVICE, {"rounding": "down", "workers": 0, "gradient_accumulation_steps": 8}, True),
        ("update", Pool.DEVICE, {"steps_per_generation": 1}, True),
        ("generate", Pool.DEVICE, {"checkpointing": True}, True),
        ("generate", Pool.DEVICE, {"steps_per_generation": 1}, False),
        ("generate", Pool.DEVICE, {"steps_per_generation": 4, "micro_batch_size": 1}, True),
        ("generate", Pool.DEVICE, {"steps_per_generation": 1, "micro_batch_size": 4}, True),
        (None, Pool.DEVICE, {"steps_per_generation": 4, "micro_batch_size": 1}, False),
        ("load", Pool.DEVICE, {"checkpointing": True, "micro_batch_size": 1}, True),
        ("load", Pool.DEVICE, {"micro_batch_size": 4}, True),
        ("load", Pool.DEVICE, {"micro_batch_size": 4, "share": 0.3}, False),
        ("engine", Pool.DEVICE, {"checkpointing": True}, True),
        ("engine", Pool.DEVICE, {"share": 0.3}, False),
        ("engine", Pool.DEVICE, {"steps_per_generation": 1}, False),
        ("capture", Pool.DEVICE, {"steps_per_generation": 4, "micro_batch_size": 1}, True),
        ("engine", Pool.ROLLOUT_CACHE, {"share": 0.3}, True),
        ("engine", Pool.ROLLOUT_CACHE, {"share": 0.9}, False),
        ("first_batch", Pool.DEVICE, {"checkpointing": True}, False),
        ("generate", Pool.ROLLOUT_CACHE, {"share": 0.3}, True),
        ("generate", Pool.ROLLOUT_CACHE, {"share": 0.9}, False),
        ("generate", Pool.ROLLOUT_CACHE, {"share": 0.3, "precision": "bf16", "zero_stage": 3}, True),
        ("generate", Pool.ROLLOUT_CACHE, {"share": 0.3, "steps_per_generation": 1}, False),
        ("update", Pool.HOST, {"micro_batch_size": 1}, True),
        ("update", Pool.HOST, {"offload": True}, True),
        ("update", None, {"micro_batch_size": 4}, True),
        ("update", None, {"share": 0.9}, False),
        ("update", None, {"share": 0.3}, False),
    ],
)
def test_directions(phase: str | None, pool: Pool | None, changes: dict[str, Any], ruled: bool) -> None:
    assert rules_out(oom(BASE, phase, pool), BASE.with_(**changes)) is ruled


def test_on_a_cpu_the_device_is_the_host() -> None:
    failed = oom(BASE, "update", Pool.HOST)
    assert rules_out(failed, BASE.with_(micro_batch_size=1), one_memory=False)
    assert not rules_out(failed, BASE.with_(micro_batch_size=1), one_memory=True)
    assert not rules_out(failed, BASE.with_(offload=True), one_memory=True), "less of one, more of the other"


def test_a_phase_no_knob_acts_on_is_not_taken_for_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {n: SMALL[n] for n in ("micro_batch_size", "checkpointing", "workers", "rounding")}
    monkeypatch.setattr(dominance, "KNOBS", few)
    settings = Configuration({"micro_batch_size": 2, "checkpointing": True, "workers": 0, "rounding": "up"})
    idle = not_none(dominance.region(oom(settings, "idle", Pool.DEVICE), one_memory=False))
    assert dominance.covers(idle, settings.with_(micro_batch_size=4))
    assert not dominance.covers(idle, settings.with_(micro_batch_size=1))
    assert dominance.region(oom(settings, "update", Pool.ROLLOUT_CACHE), one_memory=False) is None


def test_a_knob_outside_the_catalogue_must_be_equal() -> None:
    failed = oom(BASE.with_(mystery=1), "update", Pool.DEVICE)
    assert rules_out(failed, BASE.with_(mystery=1, micro_batch_size=4))
    assert not rules_out(failed, BASE.with_(mystery=2, micro_batch_size=4))
    assert not rules_out(failed, BASE.with_(micro_batch_size=4))
    found = dominance.regions([failed], one_memory=False)
    assert CandidateGrid((BASE, BASE.with_(micro_batch_size=4)), VALUES, ()).without((), found).all()


def test_a_value_without_a_place_in_the_order_must_be_equal() -> None:
    failed = oom(BASE.with_(precision="int3"), "update", Pool.DEVICE)
    assert rules_out(failed, BASE.with_(precision="int3"))
    assert not rules_out(failed, BASE.with_(precision="fp32"))
    assert not rules_out(oom(BASE, "update", Pool.DEVICE), BASE.with_(precision="int3"))


@pytest.mark.parametrize("reason", [r for r in FailureReason if r is not FailureReason.OOM])
def test_only_memory_failures_rule_out(reason: FailureReason) -> None:
    failed = factories.failed(4, Outcome(reason, "update", Pool.DEVICE), configuration=BASE)
    assert dominance.regions([failed], one_memory=False) == ()


def test_rows_of_a_generation_follow_accumulation_where_no_steps_are_set() -> None:
    unset = Configuration({k: v for k, v in BASE.items() if k != "steps_per_generation"})
    for spelled in (unset, BASE.with_(steps_per_generation="accumulation")):
        few = spelled.with_(micro_batch_size=2, gradient_accumulation_steps=1)
        assert dominance.coordinate(dominance.STEPS, few) == 2
        assert dominance.coordinate(dominance.STEPS, few.with_(gradient_accumulation_steps=8)) == 16


def test_sentences_name_what_goes_beyond() -> None:
    region = not_none(dominance.region(oom(BASE, "update", Pool.DEVICE), one_memory=False))
    more = BASE.with_(micro_batch_size=4, precision="fp32")
    assert dominance.sentence(region, more) == (
        "trial 4 (micro_batch_size 2, precision bf16) ran out of device memory in update; "
        "this asks for at least as much"
    )
    assert dominance.sentence(region, BASE) == (
        "trial 4 ran out of device memory in update; this asks for at least as much"
    )
    rows = not_none(dominance.region(oom(BASE, "generate", Pool.ROLLOUT_CACHE), one_memory=False))
    assert dominance.sentence(rows, BASE.with_(micro_batch_size=4)) == (
        "trial 4 (generation rows 4) ran out of rollout cache in generate; this asks for at least as much"
    )


@settings(deadline=None)
@given(configurations, configurations, configurations, places, st.booleans())
def test_transitive(
    first: Configuration,
    second: Configuration,
    third: Configuration,
    place: tuple[Pool | None, str | None],
    one_memory: bool,
) -> None:
    pool, phase = place
    if rules_out(oom(first, phase, pool), second, one_memory=one_memory) and rules_out(
        oom(second, phase, pool), third, one_memory=one_memory
    ):
        assert rules_out(oom(first, phase, pool), third, one_memory=one_memory)


@settings(deadline=None)
@given(configurations, places, st.booleans())
def test_a_failure_rules_itself_out_wherever_a_knob_acts(
    configuration: Configuration, place: tuple[Pool | None, str | None], one_memory: bool
) -> None:
    assert rules_out(oom(configuration, place[1], place[0]), configuration, one_memory=one_memory)


@settings(deadline=None)
@given(configurations, st.sampled_from(("micro_batch_size", "checkpointing", "precision", "share")), st.data())
def test_never_what_needs_less_of_one_knob_and_the_same_of_the_rest(
    failed: Configuration, name: str, data: st.DataObject
) -> None:
    values = VALUES[name][::-1] if name == "checkpointing" else VALUES[name]
    place = values.index(failed[name])
    assume(place > 0)
    less = failed.with_(**{name: values[data.draw(st.integers(0, place - 1))]})
    assert not rules_out(oom(failed, "update", Pool.DEVICE), less)
    assert rules_out(oom(less, "update", Pool.DEVICE), failed)


weights = st.lists(st.integers(0, 5), min_size=8, max_size=8)


def _need(configuration: Configuration, pool: Pool, phase: str, w: list[int]) -> float:
    """A truth that grows as the catalogue says; the ZeRO stage moves it any way, and so does an unused knob not."""
    c = {name: VALUES[name].index(value) for name, value in configuration.items()}
    rows = float(configuration["micro_batch_size"])
    batch = rows * float(configuration["steps_per_generation"])
    if pool is Pool.HOST:
        return w[0] * c["offload"] + (w[1] * c["workers"] if phase == "reward" else 0)
    if pool is Pool.ROLLOUT_CACHE:
        return (w[2] * batch if phase == "generate" else 0) - w[3] * c["share"]
    base = w[4] * c["precision"] + (3, 0, 7)[c["zero_stage"]] + w[3] * c["share"] - w[0] * c["offload"]
    per_phase = {
        "generate": w[2] * batch,
        "logprob": w[5] * rows,
        "update": w[6] * rows * (1 if configuration["checkpointing"] else 1 + w[7]),
    }
    return base + per_phase.get(phase, 0)


@settings(deadline=None)
@given(
    st.lists(configurations, min_size=2, max_size=12),
    weights,
    st.sampled_from(tuple(Pool)),
    st.sampled_from(("generate", "logprob", "update", "reward")),
    st.integers(-5, 40),
    st.booleans(),
    st.booleans(),
)
def test_what_fits_is_never_ruled_out(
    tried: list[Configuration], w: list[int], pool: Pool, phase: str, limit: int, phase_known: bool, pool_known: bool
) -> None:
    failures = [
        oom(c, phase if phase_known else None, pool if pool_known else None, number)
        for number, c in enumerate(tried)
        if _need(c, pool, phase, w) > limit
    ]
    fitting = [c for c in tried if _need(c, pool, phase, w) <= limit]
    for failed, configuration in itertools.product(failures, fitting):
        assert not rules_out(failed, configuration)


@settings(deadline=None)
@given(st.lists(configurations, min_size=1, max_size=10, unique=True), configurations, places, st.booleans())
def test_thousands_at_once_are_judged_as_one_by_one(
    candidates: list[Configuration], failed: Configuration, place: tuple[Pool | None, str | None], one_memory: bool
) -> None:
    grid = CandidateGrid(candidates, VALUES, ())
    found = dominance.regions([oom(failed, place[1], place[0])], one_memory=one_memory)
    left = grid.without((), found)
    assert left.tolist() == [not any(dominance.covers(r, c) for r in found) for c in candidates]
