"""Memory use of an attempt at a trial over time: two series of bounded length, in a small file beside the log.

The trial runs the user's code, which could change the file; a reader therefore checks its content.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path

from autotune.documents import codec
from autotune.documents.study import Document, plain, timestamp
from autotune.errors import NotFoundError
from autotune.wording.numbers import format_duration
from autotune.wording.text import clean

MOST_POINTS = 300
"""Most points of a series, in the file and in every answer."""
FINEST_S = 0.125
"""Shortest interval that has its own point, in seconds: a power of two, so that intervals are exact floats."""
LARGEST_BYTES = 1 << 17
"""Largest file that is read, in bytes; a file with known phases takes less than a third of it."""
VERSION = 1

_LONGEST_PHASE = 64
_LARGEST = 2**53 - 1
"""Largest integer that every JSON reader represents exactly."""
_LONGEST_S = 1e9


@dataclass(frozen=True)
class Point:
    """Memory in use at one moment."""

    seconds: float
    """Seconds since the attempt began."""
    used: int
    """Memory in use, in bytes."""
    phase: str = ""
    """Value of ``Phase`` or ``StartupPart``; empty before the first phase."""
    cycle: int = -1
    """Index of the cycle; -1 during the start-up."""


@dataclass(frozen=True)
class MemoryTimeline:
    """Memory of host and GPU over time; both series ascend in time and have at most ``MOST_POINTS`` points."""

    began_at: float
    """Start of the attempt, in UTC seconds since the epoch."""
    host: tuple[Point, ...]
    """Summed PSS of the process tree."""
    device: tuple[Point, ...] = ()
    """Memory in use by the driver's figure, on the fullest of the GPUs held; empty on a CPU."""


_Row = tuple[float, int, str, int]


@dataclass(frozen=True)
class _File:
    """Content of the file; a row has the fields of a ``Point``."""

    version: int
    began_at: float
    host: tuple[_Row, ...]
    device: tuple[_Row, ...]


def stretch(end: float, most: int) -> float:
    """Returns an interval width in seconds: ``FINEST_S``, doubled until ``most`` intervals cover ``end`` seconds."""
    width = FINEST_S
    while end >= width * most:
        width *= 2
    return width


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """Selects the highest point of each of at most ``most`` equal intervals of time, the first of equals. Pure.

    Widths only double, so thinning a series in steps gives the same points as thinning it at the end.

    Args:
        points: ascending in time.
        most: at least 1.
    """
    width = stretch(points[-1].seconds, most) if points else FINEST_S
    kept: dict[int, Point] = {}
    for point in points:
        place = int(point.seconds / width)
        known = kept.get(place)
        if known is None or point.used > known.used:
            kept[place] = point
    return tuple(kept.values())


def peak(points: Sequence[Point]) -> Point | None:
    """Returns the point with the most memory in use, the first of equals; ``None`` for no points."""
    return max(points, key=lambda point: point.used, default=None)


def phase_words(point: Point) -> str:
    """Returns the phase of a point in words: ``update of cycle 3``, ``first batch``; empty before the first phase."""
    phase = clean(point.phase).replace("_", " ")
    return f"{phase} of cycle {point.cycle}" if phase and point.cycle >= 0 else phase


def moment_words(point: Point) -> str:
    """Returns the time and phase of a point in words: ``after 41 s, in update of cycle 3``."""
    phase = phase_words(point)
    return f"after {format_duration(point.seconds)}" + (f", in {phase}" if phase else "")


def timeline_json(timeline: MemoryTimeline) -> Document:
    """Converts a timeline to the JSON of the REST API."""
    return {
        "began_at": timestamp(timeline.began_at),
        "host": [_point_json(point, "host_bytes") for point in timeline.host],
        "device": [_point_json(point, "device_used_bytes") for point in timeline.device],
    }


def _point_json(point: Point, name: str) -> Document:
    cycle = point.cycle if point.cycle >= 0 else None
    return {"seconds": point.seconds, name: point.used, "phase": plain(point.phase) or None, "cycle": cycle}


def text_of(timeline: MemoryTimeline) -> str:
    """Converts a timeline to the text of its file."""
    host, device = (tuple(map(astuple, points)) for points in (timeline.host, timeline.device))
    return codec.dump(_File(VERSION, timeline.began_at, host, device), canonical=False)


def parse(data: bytes) -> MemoryTimeline | None:
    """Parses the bytes of a timeline file; returns ``None`` if ``text_of`` did not write them."""
    try:
        found: _File = codec.load(_File, data.decode())
    except (ValueError, OverflowError):  # ``CodecError`` and ``UnicodeDecodeError`` are the first
        return None
    host, device = _series(found.host), _series(found.device)
    if found.version != VERSION or host is None or device is None or not 0 <= found.began_at <= _LARGEST:
        return None
    return MemoryTimeline(found.began_at, host, device)


def plain_file(path: Path) -> int:
    """Opens a file that a trial may have written; follows no link and waits for no pipe. Returns the descriptor."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def read(path: Path, opened: Callable[[Path], int] = plain_file) -> MemoryTimeline | None:
    """Reads the timeline in a file; ``None`` if it cannot be read. ``opened`` gives a path's descriptor."""
    try:
        file = opened(path)
    except (OSError, NotFoundError):
        return None
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST_BYTES:
            return None
        return parse(os.pread(file, LARGEST_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(file)


def _series(rows: Sequence[_Row]) -> tuple[Point, ...] | None:
    points = [Point(*row) for row in rows]
    growing = all(before.seconds <= after.seconds for before, after in pairwise(points))
    return thinned(points) if growing and all(map(_is_possible, points)) else None


def _is_possible(point: Point) -> bool:
    whole = 0 <= point.used <= _LARGEST and -1 <= point.cycle <= _LARGEST
    return whole and 0 <= point.seconds <= _LONGEST_S and len(point.phase) <= _LONGEST_PHASE
