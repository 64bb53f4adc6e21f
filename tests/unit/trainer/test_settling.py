"""A first timed cycle that still was a warm-up is dropped, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import factories
from trainer.child.contract import CycleKind, CycleRecord, Protocol
from trainer.child.cycles import CyclePlan, Settling

SEARCH = Protocol(warmup=1, natural=0, recorded=3)


def run(
    protocol: Protocol, seconds: list[float], disturbed: frozenset[int] = frozenset(), agree: bool | None = None
) -> tuple[list[CycleRecord], CyclePlan]:
    """What is told of cycles that take ``seconds``, the last of them for ever; those in ``disturbed`` drift."""
    plan = CyclePlan(protocol)
    settling = Settling(plan, lambda mine: mine if agree is None else agree)
    records: list[CycleRecord] = []
    index = 0
    while (kind := plan.next()) is not None:
        spent = seconds[min(index, len(seconds) - 1)]
        accepted, noisy = plan.judge(kind, 0.5 if index in disturbed else 0.0)
        made = factories.cycle(index, seconds=spent, cycle_kind=kind, accepted=accepted, noisy=noisy)
        records += settling.pass_on(made)
        index += 1
        assert index <= plan.longest
    assert [record.index for record in records] == list(range(index)), "each once and in order, none kept for ever"
    assert settling.rest() == []
    return records, plan


def timed(records: list[CycleRecord]) -> list[float]:
    return [record.seconds for record in records if record.cycle_kind is CycleKind.RECORDED and record.accepted]


@pytest.mark.parametrize(
    ("seconds", "told", "repeats"),
    [
        ([26.46, 32.17, 16.99, 17.18, 17.0], [16.99, 17.18, 17.0], 1),  # an H100, generation by transformers, 1.5B
        ([9.0, 6.0, 5.5, 5.8], [6.0, 5.5, 5.8], 0),  # they agree
        ([30.0, 20.0, 10.0, 5.0, 5.0], [5.0, 5.0, 5.0], 2),  # until two agree
        ([9.0, 5.0, 9.0, 5.0], [5.0, 9.0, 5.0], 0),  # a slow one later on is no warm-up
    ],
)
def test_cycles_are_dropped_and_made_up_for_until_two_agree(
    seconds: list[float], told: list[float], repeats: int
) -> None:
    records, plan = run(SEARCH, seconds)
    assert (timed(records), plan.repeats) == (told, repeats)


def test_without_repeats_the_cycle_stays_and_is_marked() -> None:
    records, plan = run(replace(SEARCH, max_repeats=0), [9.0, 20.0, 10.0, 10.0])
    assert timed(records) == [20.0, 10.0, 10.0]
    assert [record.noisy for record in records] == [False, True, False, False]
    assert plan.repeats == 0


@pytest.mark.parametrize(
    "protocol",
    [replace(SEARCH, natural=1), replace(SEARCH, recorded=1), replace(SEARCH, warmup=0)],
    ids=["settled before", "nothing to compare with", "nothing warmed up"],
)
def test_elsewhere_nothing_is_held_back_or_dropped(protocol: Protocol) -> None:
    records, plan = run(protocol, [9.0, 9.0, 5.0, 5.0])
    assert all(record.accepted for record in records)
    assert plan.repeats == 0


def test_what_the_guard_discarded_is_not_compared_with() -> None:
    """Cycle 2 is disturbed: the comparison waits for cycle 3, and all are told in order."""
    records, plan = run(SEARCH, [9.0, 6.0, 3.0, 5.9, 6.0], frozenset({2}))
    assert timed(records) == [6.0, 5.9, 6.0]
    assert [record.accepted for record in records] == [True, True, False, True, True]
    assert plan.repeats == 1


def test_all_ranks_do_as_the_first_says() -> None:
    """Each rank's clock is its own; were one to repeat a cycle alone, it would wait for the others for ever."""
    assert timed(run(SEARCH, [9.0, 20.0, 5.0, 5.0], agree=False)[0]) == [20.0, 5.0, 5.0]
    assert len(run(SEARCH, [9.0, 5.0, 5.0, 5.0], agree=True)[0]) == 1 + 3 + SEARCH.max_repeats


@given(
    st.builds(
        Protocol,
        warmup=st.integers(0, 2),
        natural=st.integers(0, 2),
        recorded=st.integers(0, 8),
        maximum=st.integers(0, 2),
        double=st.integers(0, 1),
        max_repeats=st.integers(0, 4),
    ),
    st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20),
    st.frozensets(st.integers(0, 20)),
)
def test_every_protocol_is_fulfilled_whatever_cycles_take(
    protocol: Protocol, seconds: list[float], disturbed: frozenset[int]
) -> None:
    records, plan = run(protocol, seconds, disturbed)
    assert len(timed(records)) == protocol.recorded
    assert plan.repeats <= protocol.max_repeats
    assert len(records) == sum(plan.done.values()) + plan.repeats
