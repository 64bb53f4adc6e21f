from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child.checks import prompt_count
from trainer.child.contract import CycleKind, Protocol
from trainer.child.cycles import CyclePlan, assign, doubled, resample

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=64)


def walk(protocol: Protocol, disturbed: list[bool]) -> tuple[list[CycleKind], CyclePlan]:
    plan = CyclePlan(protocol)
    kinds = []
    while (kind := plan.next()) is not None:
        kinds.append(kind)
        noise = disturbed.pop(0) if disturbed else False
        plan.judge(kind, 1.0 if noise else 0.0)
        assert len(kinds) <= plan.longest
    return kinds, plan


@pytest.mark.parametrize(
    ("protocol", "order"),
    [
        (Protocol(warmup=1, natural=2, recorded=3, maximum=2), "wnnrrrmm"),
        (Protocol(warmup=1, natural=1, recorded=2, maximum=1, double=2), "wnrrmdd"),
        (Protocol(warmup=1, natural=1, recorded=3, maximum=1, double=1, lengths=(3, 4)), "wrrrnmd"),
    ],
)
def test_the_cycles_of_the_figure_have_the_same_places_once_lengths_are_known(protocol: Protocol, order: str) -> None:
    kinds, _ = walk(protocol, [])
    assert "".join(kind.value[0] for kind in kinds) == order


@given(LENGTHS, st.integers(1, 512))
def test_twice_the_lengths_is_that_or_the_maximum_row_by_row(lengths: list[int], longest: int) -> None:
    assert doubled(lengths, longest) == tuple(2 * n if 2 * n <= longest else longest for n in lengths)


@given(
    st.builds(
        Protocol,
        warmup=st.integers(0, 2),
        natural=st.integers(0, 2),
        recorded=st.integers(0, 4),
        maximum=st.integers(0, 3),
        double=st.integers(0, 2),
        max_repeats=st.integers(0, 4),
    ),
    st.lists(st.booleans(), max_size=40),
)
def test_every_protocol_is_fulfilled_within_its_longest_walk(protocol: Protocol, disturbed: list[bool]) -> None:
    kinds, plan = walk(protocol, disturbed)
    assert plan.done[CycleKind.RECORDED] == protocol.recorded
    assert plan.done[CycleKind.MAXIMUM] == protocol.maximum
    assert plan.done[CycleKind.NATURAL] == protocol.natural
    assert plan.done[CycleKind.DOUBLE] == protocol.double
    assert len(kinds) == sum(plan.done.values()) + plan.repeats
    assert plan.repeats <= protocol.max_repeats


def test_a_disturbed_cycle_is_repeated_until_none_are_left_then_kept_and_marked() -> None:
    plan = CyclePlan(Protocol(max_repeats=1))
    assert plan.judge(CycleKind.RECORDED, 0.06) == (False, False)
    assert plan.judge(CycleKind.RECORDED, 0.06) == (True, True)


@pytest.mark.parametrize(
    ("disturbed", "walked", "repeats"),
    [
        ([False, True, True, True, True, True, True], "wrrrrrr", 3),  # always: the repeats are used up
        ([False, True, False, True, False, True, False], "wrrrrrr", 3),  # bursts that a repeat does not meet
        ([False, False, False, False], "wrrr", 0),
    ],
)
def test_repeats_are_spent_on_disturbed_cycles_only(disturbed: list[bool], walked: str, repeats: int) -> None:
    kinds, plan = walk(Protocol(warmup=1, recorded=3, max_repeats=3), disturbed)
    assert ("".join(kind.value[0] for kind in kinds), plan.repeats) == (walked, repeats)


def test_a_repeat_for_a_compilers_sake_may_itself_be_repeated() -> None:
    plan = CyclePlan(Protocol(max_repeats=3))
    assert plan.judge(CycleKind.RECORDED, 0.0, True) == (False, False)
    assert plan.judge(CycleKind.RECORDED, 1.0) == (False, False)
    assert plan.judge(CycleKind.RECORDED, 1.0) == (False, False)
    assert plan.judge(CycleKind.RECORDED, 1.0) == (True, True)


def test_the_limits_themselves_are_allowed_and_the_unknown_disturbs_nobody() -> None:
    plan = CyclePlan(Protocol())
    assert plan.judge(CycleKind.RECORDED, 0.05) == (True, False)
    assert plan.judge(CycleKind.MAXIMUM, None) == (True, False)


def test_a_cycle_in_which_something_was_compiled_is_repeated_and_the_warm_up_is_not() -> None:
    """Compiling takes a hundred times as long as the cycle, once; a run of hours never sees it."""
    plan = CyclePlan(Protocol(max_repeats=1))
    assert plan.judge(CycleKind.WARMUP, None, True) == (True, False)
    assert plan.judge(CycleKind.RECORDED, 0.0, True) == (False, False)
    assert plan.judge(CycleKind.RECORDED, 0.0) == (True, False)
    assert plan.repeats == 1


def test_a_disturbed_natural_cycle_is_kept_marked_and_costs_no_repeat() -> None:
    plan = CyclePlan(Protocol(natural=1))
    assert plan.judge(CycleKind.NATURAL, 1.0) == (True, True)
    assert plan.repeats == 0


@pytest.mark.parametrize(
    ("natural", "repeats"), [((1.0, 1.0), 0), ((1.0, 0.0), 3), ((0.0, 1.0), 3), ((1.0,), 3), ((), 3)]
)
def test_on_a_machine_that_is_always_busy_no_repeat_is_spent(natural: tuple[float, ...], repeats: int) -> None:
    plan = CyclePlan(Protocol(natural=len(natural), recorded=3, max_repeats=3))
    assert plan.judge(CycleKind.WARMUP, 1.0) == (True, False)
    for share in natural:
        assert plan.judge(CycleKind.NATURAL, share)[0]
    while plan.next() is not None:
        assert plan.judge(CycleKind.RECORDED, 1.0)[1] is (plan.repeats == repeats and plan.done[CycleKind.RECORDED] > 0)
    assert plan.repeats == repeats
    compiling = CyclePlan(Protocol(natural=len(natural), max_repeats=3))
    for share in natural:
        compiling.judge(CycleKind.NATURAL, share)
    assert compiling.judge(CycleKind.RECORDED, 1.0, True) == (False, False), (
        "what is compiled once is left out anywhere"
    )


@given(LENGTHS, st.integers(0, 5), st.integers(0, 50))
def test_every_turn_deals_the_same_lengths(lengths: list[int], seed: int, turn: int) -> None:
    dealt = assign(lengths, len(lengths), seed, turn)
    assert Counter(dealt) == Counter(lengths)
    assert dealt == assign(tuple(lengths), len(lengths), seed, turn)


@given(LENGTHS, st.integers(1, 96), st.integers(0, 5))
def test_resampling_keeps_values_and_range(lengths: list[int], rows: int, seed: int) -> None:
    picked = resample(lengths, rows, seed)
    assert len(picked) == rows
    assert set(picked) <= set(lengths)
    if rows >= len(lengths):
        assert set(picked) == set(lengths)


@given(LENGTHS, st.integers(2, 4))
def test_a_whole_multiple_of_rows_repeats_each_length_as_often(lengths: list[int], times: int) -> None:
    assert Counter(resample(lengths, times * len(lengths), 0)) == Counter(lengths * times)


def test_turns_and_seeds_differ_in_order() -> None:
    lengths = tuple(range(32))
    assert len({assign(lengths, 32, seed, turn) for seed in range(3) for turn in range(3)}) == 9


@pytest.mark.parametrize("rows", [2, 8, 96, 512])
def test_trials_of_a_few_cycles_more_have_the_same_prompts_and_enough(rows: int) -> None:
    counts = {prompt_count(cycles, rows) for cycles in range(5, 9)}
    assert len(counts) == 1
    assert counts.pop() >= 8 * rows // 2
    assert prompt_count(5000, rows) >= 5000 * rows // 2
