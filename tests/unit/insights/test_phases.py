"""Headroom, and the sentence that says what limits a trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import Peaks, Pool, Trial
from autotune.insights import phases
from tests.support import factories
from tests.support.factories import GIB
from tests.support.not_none import not_none


def _with_cycles(*spent: dict[str, float], **changes: object) -> Trial:
    cycles = tuple(factories.cycle(i, seconds=max(1e-9, sum(p.values())), phases=p) for i, p in enumerate(spent))
    return factories.finished(1, cycles=0).with_(cycles=tuple(replace(c, **changes) for c in cycles))  # type: ignore[arg-type]


def test_the_sentence_names_the_largest_phase_and_the_room_left() -> None:
    trial = _with_cycles({"update": 71.0, "generate": 29.0}, peaks={}).with_(watchdog_peak=62 * GIB)
    assert phases.limit_sentence(trial) == "update takes 71 % of a cycle"
    room = phases.tightest([trial], 100 * GIB, None)
    assert phases.limit_sentence(trial, room) == "update takes 71 % of a cycle; host memory headroom 38 %"
    idle = _with_cycles({"update": 1.0, "idle": 3.0})
    assert phases.limit_sentence(idle) == "time outside every phase takes 75 % of a cycle"
    assert phases.limit_sentence(factories.failed(1)) == "no speed cycle was measured"


def test_headroom_is_of_the_pool_closest_to_its_limit() -> None:
    trial = _with_cycles({"update": 1.0}, peaks={"cycle": Peaks(device_used=90, host=10)}).with_(watchdog_peak=20)
    room = not_none(phases.tightest([trial], host_limit=100, device_limit=100))
    assert (room.pool, room.peak) == (Pool.DEVICE, 90)
    assert room.share == pytest.approx(0.1)
    assert not_none(phases.tightest([trial], 100, None)).share == pytest.approx(0.8)
    assert phases.tightest([trial], None, None) is None
    over = not_none(phases.tightest([trial.with_(watchdog_peak=110), trial], 100, None))
    assert over.share == pytest.approx(-0.1)
