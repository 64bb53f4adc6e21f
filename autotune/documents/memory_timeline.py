"""The memory of an attempt at a trial over its time: series of bounded length, in a small file beside its log.

The tuner writes the file, but what runs in a trial is the user's and could write there too: what is read is checked.
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
"""Of each series, in the file and in every answer."""
FINEST_S = 0.125
"""The shortest stretch of time that has a point of its own: a power of two, so that places are exact."""
LARGEST_BYTES = 1 << 17
"""Of the file; one whose phases are those we know has less than a third of it."""
VERSION = 1

_LONGEST_PHASE = 64
_LARGEST = 2**53 - 1
"""What every JSON reader can tell apart."""
_LONGEST_S = 1e9


@dataclass(frozen=True)
class Point:
    """Memory in use at one moment."""

    seconds: float
    """Since the attempt began."""
    used: int
    """Bytes."""
    phase: str = ""
    """``Phase`` or ``StartupPart`` value; empty before the first."""
    cycle: int = -1
    """-1 in the start-up."""


@dataclass(frozen=True)
class MemoryTimeline:
    """Memory of host and GPU over time; both series ascend in time and have at most ``MOST_POINTS`` points."""

    began_at: float
    """UTC seconds."""
    host: tuple[Point, ...]
    """Summed PSS of the process tree."""
    device: tuple[Point, ...] = ()
    """Of the GPUs held the fullest one, by the driver; empty on a CPU."""


_Row = tuple[float, int, str, int]


@dataclass(frozen=True)
class _File:
    """Contents of the file; a row has the fields of a ``Point``."""

    version: int
    began_at: float
    host: tuple[_Row, ...]
    device: tuple[_Row, ...]


def stretch(end: float, most: int) -> float:
    """``FINEST_S``, doubled until ``most`` stretches of so many seconds, from the beginning on, go beyond ``end``."""
    width = FINEST_S
    while end >= width * most:
        width *= 2
    return width


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """The highest point of each of at most ``most`` equal stretches of time, the first of equals. Pure.

    Stretches only ever double, so it is the same whether points are thinned on the way or at the end.

    Args:
        points: growing in time.
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
    """The highest, the first of equals; ``None`` of no points."""
    return max(points, key=lambda point: point.used, default=None)


def phase_words(point: Point) -> str:
    """``update of cycle 3``, ``first batch``; empty before the first phase."""
    phase = clean(point.phase).replace("_", " ")
    return f"{phase} of cycle {point.cycle}" if phase and point.cycle >= 0 else phase


def moment_words(point: Point) -> str:
    """``after 41 s, in update of cycle 3``."""
    phase = phase_words(point)
    return f"after {format_duration(point.seconds)}" + (f", in {phase}" if phase else "")


def timeline_json(timeline: MemoryTimeline) -> Document:
    """The timeline as the REST API has it."""
    return {
        "began_at": timestamp(timeline.began_at),
        "host": [_point_json(point, "host_bytes") for point in timeline.host],
        "device": [_point_json(point, "device_used_bytes") for point in timeline.device],
    }


def _point_json(point: Point, name: str) -> Document:
    cycle = point.cycle if point.cycle >= 0 else None
    return {"seconds": point.seconds, name: point.used, "phase": plain(point.phase) or None, "cycle": cycle}


def text_of(timeline: MemoryTimeline) -> str:
    """Text of the file."""
    host, device = (tuple(map(astuple, points)) for points in (timeline.host, timeline.device))
    return codec.dump(_File(VERSION, timeline.began_at, host, device), canonical=False)


def parse(data: bytes) -> MemoryTimeline | None:
    """The timeline in ``text_of``'s form; ``None`` for any other text."""
    try:
        found: _File = codec.load(_File, data.decode())
    except (ValueError, OverflowError):  # ``CodecError`` and ``UnicodeDecodeError`` are the first
        return None
    host, device = _series(found.host), _series(found.device)
    if found.version != VERSION or host is None or device is None or not 0 <= found.began_at <= _LARGEST:
        return None
    return MemoryTimeline(found.began_at, host, device)


def plain_file(path: Path) -> int:
    """A descriptor of a file that a trial may have written: a link is not followed, nor a pipe waited for."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def read(path: Path, opened: Callable[[Path], int] = plain_file) -> MemoryTimeline | None:
    """The timeline in a file; ``None`` if it cannot be read; ``opened`` gives its descriptor."""
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
