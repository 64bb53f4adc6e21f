"""The phase stack against a clock that is told what to say."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child.contract import NoteRecord, Phase, RunPaths, iter_complete_lines, read_phase
from trainer.child.journal import Journal
from trainer.child.memory import MemoryWatch, highest
from trainer.child.meter import Meter, attribute

PHASES = st.sampled_from([Phase.IDLE, Phase.GENERATE, Phase.REWARD, Phase.UPDATE])


@given(st.lists(st.tuples(st.floats(0, 10), PHASES), min_size=1, max_size=30))
def test_every_instant_is_attributed_once(steps: list[tuple[float, Phase]]) -> None:
    now, boundaries = 0.0, []
    for length, phase in steps:
        boundaries.append((now, phase))
        now += length
    seconds = attribute(boundaries, now, lambda first, second: second - first)
    assert sum(seconds.values()) == pytest.approx(now)
    for phase in set(seconds):
        assert seconds[phase] == pytest.approx(sum(length for length, of in steps if of is phase))


def meter_in(folder: Path, enabled: bool = True) -> Meter:
    return Meter(Journal(RunPaths(folder)), MemoryWatch(), enabled=enabled)


def test_an_inner_phase_is_taken_out_of_the_outer(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)
    meter.begin(3, "recorded")
    with meter.phase(Phase.GENERATE):
        time.sleep(0.02)
        with meter.phase(Phase.SYNC):
            time.sleep(0.04)
            assert read_phase(tmp_path / "phase") is not None
        mark = read_phase(tmp_path / "phase")
    seconds, phases = meter.end()
    peaks = meter.peaks()
    assert mark is not None
    assert (mark.phase, mark.cycle, mark.cycle_kind) == ("generate", 3, "recorded")
    assert phases["generate"] >= 0.02
    assert phases["sync"] >= 0.04
    assert sum(phases.values()) == pytest.approx(seconds)
    assert phases["generate"] + phases["sync"] + phases["idle"] == pytest.approx(seconds)
    assert {"generate", "sync", "cycle"} <= set(peaks)


def test_the_clock_starts_when_the_ranks_have_met(tmp_path: Path) -> None:
    """What this rank prepares, and how long it waits for the others, is not of the cycle."""
    meter = meter_in(tmp_path)
    left: list[float] = []

    def meet() -> None:
        with meter.phase(Phase.WAIT):
            time.sleep(0.05)
            left.append(time.perf_counter())

    meter.begin(0, "recorded", meet)
    with meter.phase(Phase.GENERATE):
        pass
    seconds, phases = meter.end()
    assert len(left) == 1
    assert seconds <= time.perf_counter() - left[0]
    assert "wait" not in phases


def test_the_phase_an_error_came_from_is_known_after_the_stack_is_gone(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)
    meter.begin(0, "warmup")

    def update() -> None:
        try:
            with meter.phase(Phase.LOGPROB):
                raise MemoryError("inner")
        except MemoryError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError) as caught:
        meter.wrap(update, Phase.UPDATE)()
    assert meter.current is None
    assert meter.fault_phase(caught.value) is Phase.UPDATE
    assert meter.fault_phase(ValueError("of something else")) is None


def test_switched_off_only_the_outer_clock_runs(tmp_path: Path) -> None:
    meter = meter_in(tmp_path, enabled=False)
    meter.begin(0, "recorded")
    with meter.phase(Phase.UPDATE):
        time.sleep(0.01)
    seconds, phases = meter.end()
    peaks = meter.peaks()
    assert phases == {"idle": seconds}
    assert seconds >= 0.01
    assert not peaks


def test_memory_that_came_and_went_within_a_phase_is_in_its_peak(tmp_path: Path) -> None:
    meter = meter_in(tmp_path)
    meter.begin(0, "recorded")
    with meter.phase(Phase.GENERATE):
        pass
    with meter.phase(Phase.UPDATE):
        block = bytearray(96 << 20)
        block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
        del block
    with meter.phase(Phase.SYNC):
        pass
    meter.end()
    peaks = meter.peaks()
    update, generate, sync = (peaks[name].host or 0 for name in ("update", "generate", "sync"))
    assert update - generate > 80 << 20
    assert update - sync > 80 << 20
    assert peaks["cycle"] == highest(None, peaks["update"])


def test_a_torn_line_does_not_take_the_next_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(RunPaths(tmp_path))
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:5]))
    with pytest.raises(OSError, match="disk full"):
        journal.write(NoteRecord("first"))
    monkeypatch.setattr(os, "write", whole)
    journal.write(NoteRecord("second"))
    lines = list(iter_complete_lines((tmp_path / "metrics.jsonl").read_bytes()))
    assert json.loads(lines[-1])["name"] == "second"
