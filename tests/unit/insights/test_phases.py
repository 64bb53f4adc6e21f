"""Shares of time, peaks, headroom, and the sentence made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import CycleKind, Peaks, Pool, Trial
from autotune.insights import phases
from tests.support import factories
from tests.support.factories import GIB


def _with_cycles(*spent: dict[str, float], **changes: object) -> Trial:
    cycles = tuple(factories.cycle(i, seconds=max(1e-9, sum(p.values())), phases=p) for i, p in enumerate(spent))
    return factories.finished(1, cycles=0).with_(cycles=tuple(replace(c, **changes) for c in cycles))  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(("generate", "update", "idle", "wait")), st.floats(0, 1e6)), max_size=5)
)
def test_shares_sum_to_one_and_come_largest_first(spent: list[dict[str, float]]) -> None:
    trial = _with_cycles(*spent)
    found = phases.shares(trial)
    if sum(sum(c.phases.values()) for c in trial.speed_cycles()) > 0:
        assert math.isclose(sum(found.values()), 1.0)
    else:
        assert found == {}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_long_cycles_weigh_more() -> None:
    trial = _with_cycles({"update": 90.0}, {"generate": 10.0})
    assert phases.shares(trial) == {"update": 0.9, "generate": 0.1}


@pytest.mark.parametrize(
    "changes", [{"accepted": False}, {"rank": 1}, {"cycle_kind": CycleKind.NATURAL}, {"cycle_kind": CycleKind.WARMUP}]
)
def test_only_speed_cycles_count(changes: dict[str, object]) -> None:
    assert phases.shares(_with_cycles({"update": 1.0}, **changes)) == {}


def test_the_sentence_names_the_largest_phase_and_the_room_left() -> None:
    trial = _with_cycles({"update": 71.0, "generate": 29.0}, peaks={}).with_(host_peak=62 * GIB)
    assert phases.limit_sentence(trial) == "update takes 71 % of a cycle"
    assert phases.limit_sentence(trial, 100 * GIB) == "update takes 71 % of a cycle; host memory headroom 38 %"
    idle = _with_cycles({"update": 1.0, "idle": 3.0})
    assert phases.limit_sentence(idle) == "time outside every phase takes 75 % of a cycle"
    assert phases.limit_sentence(factories.failed(1)) == "no speed cycle was measured"


def test_the_host_peak_is_the_highest_anyone_saw() -> None:
    seen = factories.finished(1, host_peak=GIB)
    assert phases.host_peak(seen) == 2 * GIB, "a cycle saw more than the watchdog"
    assert phases.host_peak(seen.with_(host_peak=3 * GIB)) == 3 * GIB
    assert phases.host_peak(seen.with_(host_peak=None, cycles=())) is None


def test_the_drivers_figure_goes_before_the_allocators() -> None:
    everything = Peaks(device_allocated=1, device_reserved=5, device_used=3)
    trial = _with_cycles({"update": 1.0}, peaks={"update": everything, "cycle": Peaks(device_used=2)})
    assert phases.device_peak(trial) == 3
    assert (
        phases.device_peak(_with_cycles({"update": 1.0}, peaks={"cycle": replace(everything, device_used=None)})) == 5
    )
    assert phases.device_peak(factories.finished(1)) is None


def test_headroom_is_of_the_pool_closest_to_its_limit() -> None:
    trial = _with_cycles({"update": 1.0}, peaks={"cycle": Peaks(device_used=90, host=10)}).with_(host_peak=20)
    room = phases.tightest([trial], host_limit=100, device_limit=100)
    assert room is not None
    assert (room.pool, room.peak) == (Pool.DEVICE, 90)
    assert phases.headroom([trial], 100, 100) == pytest.approx(0.1)
    assert phases.headroom([trial], 100, None) == pytest.approx(0.8)
    assert phases.headroom([trial], None, None) is None
    assert phases.headroom([trial.with_(host_peak=110), trial], 100, None) == pytest.approx(-0.1)
