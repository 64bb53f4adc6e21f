"""Elements of a Cartesian product by index, so that a huge product can be sampled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def at(choices: Sequence[Sequence[T]], index: int) -> tuple[T, ...]:
    """Returns the combination at ``index``; the last choice changes fastest, as in ``itertools.product``."""
    row: list[T] = []
    for options in reversed(choices):
        index, place = divmod(index, len(options))
        row.append(options[place])
    return tuple(reversed(row))


def size(choices: Sequence[Sequence[T]]) -> int:
    """Returns the number of combinations."""
    return math.prod(len(options) for options in choices)


def spread(choices: Sequence[Sequence[T]], limit: int) -> Iterator[tuple[T, ...]]:
    """Yields every combination in order; if there are more than ``limit``, only ``limit`` evenly spaced ones."""
    total = size(choices)
    if total <= limit:
        yield from itertools.product(*choices)
        return
    # A stride that shares no factor with the total visits every part of every choice.
    stride = int(total * 0.6180339887498949) | 1
    while math.gcd(stride, total) != 1:
        stride += 2
    yield from (at(choices, index) for index in sorted(i * stride % total for i in range(limit)))
