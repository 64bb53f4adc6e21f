"""What a writer's turns say of its readers."""

from __future__ import annotations

import itertools
import math

import pytest

from benchmarks.api.turns import ALONE, KINDS, SERVED, SETTLE_S, Turn, slower, take
from benchmarks.api.writer import Write, Written


def taken(rounds: int, seconds: float = 10.0) -> list[Turn]:
    clock = [100.0]

    def act(kind: str, seconds: float) -> None:
        clock[0] += seconds + 0.25

    return take(rounds, seconds, act, lambda: clock[0])


def test_each_round_has_every_kind_and_begins_with_another() -> None:
    turns = taken(6)
    assert [t.kind for t in turns[::2]] == [*KINDS] * 3
    for number in range(6):
        assert {t.kind for t in turns if t.round == number} == set(KINDS)
    assert all(t.end - t.begin == pytest.approx(10.0 - SETTLE_S) for t in turns)
    assert all(later.begin >= before.end for before, later in itertools.pairwise(turns))
    assert all(t.end > t.begin for t in taken(1, 0.5)), "a short one is not settled for the whole of it"


def writes_of(turns: list[Turn], took: dict[str, float], drift: float = 0.0) -> list[Write]:
    """Two a second, each as long as its kind says, on a machine that becomes slower with every round."""
    found: list[Write] = []
    for turn in turns:
        each = took[turn.kind] * (1.0 + drift) ** turn.round
        found += [(turn.begin + n / 2, each) for n in range(int(2 * (turn.end - turn.begin)))]
        found.append((turn.end + 0.1, 99.0))
    return found


def test_a_machine_that_becomes_slower_is_not_put_down_to_the_readers() -> None:
    turns = taken(6)
    assert slower(writes_of(turns, {ALONE: 0.003, SERVED: 0.0033}, drift=0.5), turns) == pytest.approx((0.1, 0.1, 0.1))


def test_rounds_that_differ_widen_the_interval_and_one_alone_has_none() -> None:
    turns = taken(2)
    writes = [(t.begin, 0.003 if t.kind == ALONE else 0.003 * (1.0 + 0.1 * t.round)) for t in turns]
    value, low, high = slower(writes, turns)
    assert low < 0.0 < value < 0.1 < high
    value, *ends = slower([w for w, t in zip(writes, turns, strict=True) if t.round == 0], turns)
    assert value == pytest.approx(0.0)
    assert all(map(math.isnan, ends))


def test_a_turn_without_a_write_says_nothing() -> None:
    turns = taken(1)
    for kind in KINDS:
        assert all(map(math.isnan, slower([(t.begin, 0.003) for t in turns if t.kind != kind], turns)))


def test_a_writer_is_told_by_its_mean_and_its_slow_writes() -> None:
    figures = Written(tuple((float(n), 0.001 * n) for n in range(1, 101))).figures()
    assert figures == {"mean": pytest.approx(0.0505), "p95": pytest.approx(0.095), "writes": 100.0}
