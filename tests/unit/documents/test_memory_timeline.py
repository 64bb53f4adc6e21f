"""The memory of an attempt over its time: no peak is lost by thinning, nothing foreign is believed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.documents.memory_timeline import (
    FINEST_S,
    LARGEST_BYTES,
    MOST_POINTS,
    MemoryTimeline,
    Point,
    moment_words,
    parse,
    peak,
    phase_words,
    read,
    stretch,
    text_of,
    thinned,
    timeline_json,
)
from tests.support import factories as f
from trainer.child.contract import PhaseMark

PHASES = st.sampled_from([("", -1), ("load", -1), ("generate", 0), ("update", 3)])
STEPS = st.tuples(st.floats(0, 100), st.integers(0, 2**45), PHASES)


def series(steps: list[tuple[float, int, tuple[str, int]]]) -> tuple[Point, ...]:
    now, points = 0.0, []
    for gap, used, (phase, cycle) in steps:
        now += gap
        points.append(Point(round(now, 2), used, phase, cycle))
    return tuple(points)


SERIES = st.lists(STEPS, max_size=120).map(series)


@given(points=SERIES, most=st.integers(1, 60))
def test_thinning_keeps_some_of_the_points_in_their_order_and_the_highest(points: tuple[Point, ...], most: int) -> None:
    kept = thinned(points, most)
    assert len(kept) <= most
    every = iter(points)
    assert all(any(point is other for other in every) for point in kept)
    assert peak(kept) == peak(points)
    assert bool(kept) is bool(points)


@given(points=SERIES, most=st.integers(1, 60))
def test_near_every_point_that_is_left_out_one_as_high_is_kept(points: tuple[Point, ...], most: int) -> None:
    kept = thinned(points, most)
    near = stretch(points[-1].seconds, most) if points else 0.0
    for point in points:
        assert any(other.used >= point.used and abs(other.seconds - point.seconds) < near for other in kept)


@given(points=SERIES, cut=st.integers(0, 120), most=st.integers(1, 60))
def test_thinning_on_the_way_is_thinning_at_the_end(points: tuple[Point, ...], cut: int, most: int) -> None:
    """Else a long attempt, which is thinned a hundred times, would lose more each time."""
    whole = thinned(points, most)
    assert thinned((*thinned(points[:cut], most), *points[cut:]), most) == whole
    assert thinned(whole, most) == whole


@given(end=st.floats(0, 1e9), most=st.integers(1, 1000))
def test_a_stretch_is_no_longer_than_it_must_be(end: float, most: int) -> None:
    width = stretch(end, most)
    assert end < width * most
    assert width == FINEST_S or end >= width * most / 2


def test_points_of_one_moment_are_one() -> None:
    points = [Point(5.0, used) for used in (1, 9, 3)]
    assert thinned(points, 2) == (Point(5.0, 9),)


@given(host=SERIES, device=SERIES, began_at=st.floats(0, 4e9))
def test_what_was_written_is_read(host: tuple[Point, ...], device: tuple[Point, ...], began_at: float) -> None:
    written = MemoryTimeline(began_at, thinned(host), thinned(device))
    assert parse(text_of(written).encode()) == written


def test_the_longest_that_is_written_is_read(tmp_path: Path) -> None:
    """A week, in the longest phase a mark can name."""
    phase = "x" * PhaseMark.WIDTH
    points = tuple(Point(n * 2048.0 + 0.37, 2**44 + n, phase, 10**6) for n in range(MOST_POINTS))
    written = MemoryTimeline(f.NOW + 0.123456, points, points)
    path = tmp_path / "memory.json"
    path.write_text(text_of(written))
    assert path.stat().st_size <= LARGEST_BYTES
    assert read(path) == written


@given(cut=st.integers(0, 10_000))
def test_a_torn_file_is_none(cut: int) -> None:
    text = text_of(f.timeline()).encode()
    assert parse(text[: cut % len(text)]) is None


@given(data=st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_nothing_makes_it_fail(data: bytes) -> None:
    assert parse(data) is None


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(text_of(f.timeline())), **changes}


def row(*values: Any) -> bytes:
    return json.dumps(document(host=[list(values)])).encode()


BAD = [
    b"null",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b"1" * 5000,
    b"\xff\xfe\x00",
    json.dumps(document(version=2)).encode(),
    json.dumps(document(host=None)).encode(),
    json.dumps(document(device={"0": 1})).encode(),
    json.dumps(document(began_at="now")).encode(),
    json.dumps(document(began_at=-1)).encode(),
    json.dumps(document(host=[[2.0, 1, "load", -1], [1.0, 1, "load", -1]])).encode(),
    row(1.0, 1, "load"),
    row(1.0, 1, "load", -1, 5),
    row(float("nan"), 1, "load", -1),
    row(float("inf"), 1, "load", -1),
    row(-0.5, 1, "load", -1),
    row(10**400, 1, "load", -1),
    row(True, 1, "load", -1),
    row(1.0, -1, "load", -1),
    row(1.0, 1.5, "load", -1),
    row(1.0, True, "load", -1),
    row(1.0, 2**53, "load", -1),
    row(1.0, "1", "load", -1),
    row(1.0, 1, None, -1),
    row(1.0, 1, "x" * 65, -1),
    row(1.0, 1, "load", -2),
    row(1.0, 1, "load", 1.0),
    row(1.0, 1, "load", None),
    json.dumps(document(host=["load"])).encode(),
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:60]))
def test_what_it_cannot_be_is_none(data: bytes) -> None:
    assert parse(data) is None


def test_the_example_that_the_bad_ones_are_made_from_is_good() -> None:
    assert parse(json.dumps(document()).encode()) == f.timeline()
    assert parse(row(1, 1, "load", -1)) is not None


def test_more_points_than_are_written_are_thinned_when_read() -> None:
    many = tuple(Point(float(n), n) for n in range(5 * MOST_POINTS))
    found = parse(text_of(MemoryTimeline(f.NOW, many)).encode())
    assert found is not None
    assert found.host == thinned(many)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None])
def test_what_is_no_plain_file_is_none_and_not_waited_for(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "memory.json"
    make(path)
    assert read(path) is None


def test_a_link_and_a_file_that_is_too_large_are_none(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "memory.json"
    real.write_text(text_of(f.timeline()))
    link.symlink_to(real)
    assert read(real) == f.timeline()
    assert read(link) is None
    real.write_text(text_of(f.timeline()) + " " * LARGEST_BYTES)
    assert read(real) is None


def test_a_moment_is_told_with_its_phase() -> None:
    assert moment_words(f.point(41.0, cycle=3)) == "after 41 s, in update of cycle 3"
    assert moment_words(f.point(0.5, phase="first_batch", cycle=-1)) == "after 500 ms, in first batch"
    assert moment_words(f.point(0.5, phase="", cycle=-1)) == "after 500 ms"
    assert phase_words(f.point(phase="\x1b[31mred\x1b[0m\u202e", cycle=-1)) == "red"


def test_its_json_has_units_in_its_names() -> None:
    timeline = replace(f.timeline(), device=(f.point(5.0, 7),))
    found = timeline_json(timeline)
    assert found["began_at"] == "2026-09-21T14:13:20.000Z"
    assert found["host"][0] == {"seconds": 0.0, "host_bytes": f.GIB // 4, "phase": None, "cycle": None}
    assert found["host"][4] == {"seconds": 4.0, "host_bytes": 3 * f.GIB, "phase": "update", "cycle": 0}
    assert found["device"] == [{"seconds": 5.0, "device_used_bytes": 7, "phase": "update", "cycle": 0}]
