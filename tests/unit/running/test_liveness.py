from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from autotune.running.watchdog import HangLimits, Pulse, Vigil, advance, verdict
from tests.support.not_none import not_none

LIMITS = HangLimits(quiet_s=30.0, phase_s=100.0, by_phase={"load": 300.0})


def watch(pulses: Iterable[Pulse]) -> tuple[float, str] | None:
    """(when, why) the child is first called hung."""
    vigil = Vigil.begin(Pulse(0.0, 0, 0, 0.0))
    for pulse in pulses:
        vigil = advance(vigil, pulse, LIMITS)
        if (why := verdict(vigil, pulse, LIMITS)) is not None:
            return pulse.at, why
    return None


def silent(seconds: int, cores: float, phase: str = "update") -> list[Pulse]:
    return [Pulse(float(t), 0, 0, cores * t, phase) for t in range(1, seconds)]


def test_idle_silence_is_a_hang_after_the_quiet_time() -> None:
    hung = not_none(watch(silent(200, cores=0.01)))
    assert 30 <= hung[0] <= 36


def test_busy_silence_is_a_hang_only_at_the_phases_limit() -> None:
    hung = not_none(watch(silent(200, cores=1.0)))
    assert hung[0] == 100
    assert watch(silent(200, cores=1.0, phase="load")) is None


def test_work_that_stops_is_noticed_however_long_it_lasted() -> None:
    busy = silent(90, cores=2.0, phase="load")
    stuck = [Pulse(90.0 + t, 0, 0, busy[-1].cpu_s, "load") for t in range(100)]
    hung = not_none(watch(busy + stuck))
    assert hung[0] <= 90 + 30 + 10


@given(st.lists(st.tuples(st.floats(0.1, 25.0), st.booleans()), min_size=1, max_size=60))
def test_a_child_that_writes_something_in_time_is_never_hung(steps: list[tuple[float, bool]]) -> None:
    now, mark, written, pulses = 0.0, 0, 0, []
    for seconds, by_mark in steps:
        now += seconds
        mark, written = mark + by_mark, written + (not by_mark)
        pulses.append(Pulse(now, mark, written, 0.0, "update"))
    assert watch(pulses) is None
