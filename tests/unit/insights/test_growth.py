"""Whether memory rises over a long run: found where it does, not where one cycle or the beginning alone is high."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import CycleKind, CycleRecord, Peaks, Phase, Pool
from autotune.insights.growth import MOST_POINTS, Growth, growths, sen
from tests.support import factories as f

MIB = 1 << 20
GIB = 1 << 30


def cycles(levels: list[int], **device: list[int]) -> list[CycleRecord]:
    """``levels``: bytes of the process tree in the update, by cycle; less while generating."""
    found = []
    for index, level in enumerate(levels):
        update = Peaks(host=level, **{name: values[index] for name, values in device.items()})
        peaks = {Phase.GENERATE.value: Peaks(host=level // 2), Phase.UPDATE.value: update}
        found.append(replace(f.cycle(index=index, cycle_kind=CycleKind.NATURAL), peaks=peaks))
    return found


def scattered(count: int, rise: float, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [round(GIB + rise * i + draw.gauss(0.0, 4 * MIB)) for i in range(count)]


def host(levels: list[int], limit: int | None = 2 * GIB) -> Growth:
    found = growths(cycles(levels), limit, None)
    assert [g.pool for g in found] == [Pool.HOST]
    return found[0]


def test_a_steady_rise_is_found_with_its_slope_and_the_cycles_that_are_left() -> None:
    found = host(scattered(60, 3 * MIB))
    assert found.rises
    assert found.low <= 3 * MIB <= found.high
    assert found.early < found.late
    assert found.cycles_left == pytest.approx((2 * GIB - found.late) / found.slope)


def test_a_beginning_that_settles_is_no_rise() -> None:
    levels = [GIB // 2 + i * 25 * MIB if i < 10 else GIB for i in range(30)]
    found = host(levels)
    assert not found.rises
    assert found.cycles_left is None


def test_one_long_completion_at_the_end_is_no_rise() -> None:
    assert not host([*scattered(29, 0.0), GIB + 300 * MIB]).rises


def test_chance_alone_is_seldom_taken_for_a_rise() -> None:
    assert sum(host(scattered(40, 0.0, seed)).rises for seed in range(100)) <= 8


def test_a_rise_without_a_limit_is_told_and_has_no_end() -> None:
    found = host(scattered(60, 3 * MIB), limit=None)
    assert found.rises
    assert found.cycles_left is None


def test_a_limit_that_is_passed_already_leaves_nothing() -> None:
    assert host(scattered(60, 3 * MIB), limit=GIB).cycles_left == 0.0


def test_of_few_cycles_nothing_is_said() -> None:
    assert growths(cycles(scattered(10, MIB)), None, None) == ()
    assert growths(cycles(scattered(11, MIB)), None, None) != ()
    assert growths([], None, None) == ()


def test_of_a_pool_one_cycle_says_nothing_of_nothing_is_said() -> None:
    seen = cycles(scattered(30, MIB))
    seen[4] = replace(seen[4], peaks={})
    assert growths(seen, GIB, None) == ()


def test_a_device_counts_by_its_driver_where_that_told_of_every_cycle() -> None:
    levels, used, reserved = scattered(30, 0.0), scattered(30, 5 * MIB), scattered(30, 0.0, seed=1)
    both = growths(cycles(levels, device_used=used, device_reserved=reserved), None, 2 * GIB)
    assert [(g.pool, g.rises) for g in both] == [(Pool.HOST, False), (Pool.DEVICE, True)]
    alone = growths(cycles(levels, device_reserved=reserved), None, 2 * GIB)
    assert [(g.pool, g.rises) for g in alone] == [(Pool.HOST, False), (Pool.DEVICE, False)]


def test_more_cycles_than_there_are_points_for_have_the_same_slope() -> None:
    slope, low, high = sen([2.0 * i for i in range(10 * MOST_POINTS)])
    assert (slope, low, high) == pytest.approx((2.0, 2.0, 2.0))


@given(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=40), st.integers(-1000, 1000))
def test_the_interval_holds_the_slope_and_a_trend_that_is_added_shifts_both(values: list[int], trend: int) -> None:
    slope, low, high = sen(values)
    assert low <= slope <= high
    moved = sen([v + trend * i for i, v in enumerate(values)])
    assert moved == pytest.approx((slope + trend, low + trend, high + trend), rel=1e-6, abs=1e-3)
