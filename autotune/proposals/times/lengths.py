"""Completion lengths as decode steps: how many rows are still running at each step of a generation, pure.

Replicas share the rows in order. With continuous batching a waiting row takes the place of a finished one, and the
batch shrinks at the end; without, every row is computed until the longest has ended.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column, Task

PRESUMED_SHARE = 0.5
"""Mean completion and mean prompt, of the longest allowed, where nothing is recorded."""
SEGMENTS = 24
"""Into so many pieces of constant load a generation is cut at most."""
MOST_KEPT = 512
"""Results that are kept."""
MOST_ROWS = 1024
"""Of a replica's rows so many are looked at, evenly spaced; the others are alike."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of a cycle's rows, in tokens."""

    completions: tuple[int, ...]
    """Of each row of an update, in the order they are replayed."""
    prompt: float
    """Mean."""
    width: float
    """Of a prompt with padding."""
    presumed: bool = False
    """Nothing was recorded."""


@dataclass(frozen=True)
class DecodeLoad:
    """Decoding of one cycle by its slowest replica, in pieces of constant load; one array element each."""

    steps: Column
    live: Column
    """Rows computed in each step."""
    context: Column
    """Mean completion tokens each of them has so far."""


Pieces = NDArray[np.float64]
"""Rows: the steps, live rows and context of ``DecodeLoad``, (3, pieces)."""


def presumed(task: Task) -> Lengths:
    """Lengths of a task before any trial: those of the task, else exponential with a mean of half the limit."""
    rows = max(1, min(task.rows_per_update, MOST_ROWS))
    limit = max(1, task.max_completion_length)
    prompt = task.prompt_tokens if task.prompt_tokens else max(1.0, PRESUMED_SHARE * task.max_prompt_length)
    if task.lengths:
        return Lengths(tuple(task.lengths), prompt, prompt)
    return Lengths(heavy_tailed(rows, limit, PRESUMED_SHARE * limit), prompt, prompt, presumed=True)


@lru_cache(maxsize=MOST_KEPT)
def heavy_tailed(rows: int, limit: int, mean: float) -> tuple[int, ...]:
    """Quantiles of an exponential distribution cut at ``limit``, of about this mean, well mixed."""
    levels = [(i + 0.5) / rows for i in range(rows)]

    def cut(scale: float) -> list[int]:
        return [max(1, min(limit, round(-scale * math.log1p(-level)))) for level in levels]

    low, high = 0.0, 64.0 * limit
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sum(cut(middle)) < mean * rows else (low, middle)
    ordered, step = cut(high), max(1, round(rows * 0.618))
    while math.gcd(step, rows) != 1:
        step += 1
    return tuple(ordered[(i * step) % rows] for i in range(rows))


@lru_cache(maxsize=MOST_KEPT)
def longest_sum(completions: tuple[int, ...], generations: int, rows: float) -> float:
    """Longest completion of each generation, summed over a cycle of ``rows`` rows."""
    return float(sum(max(part) for part in _parts(_as_many(completions, rows), generations)))


@lru_cache(maxsize=MOST_KEPT)
def load(
    completions: tuple[int, ...], generations: int, replicas: int, rows: float, places: int, continuous: bool
) -> DecodeLoad:
    """Returns the decode load of the busiest replica in one cycle of ``rows`` completions over all ``replicas``; each
    decodes ``places`` together, and if ``continuous`` a row that has ended makes room. Cached: do not change the
    arrays."""
    pieces: list[Pieces] = []
    every = _as_many(completions, rows)
    weight = max(1.0, rows / len(every))
    for part in _parts(every, generations):
        share = max(_parts(part, replicas), key=lambda own: (max(own), sum(own)))
        fewest = max(1, int(places / weight))
        pieces.append(_queued(share, fewest) if continuous else _static(share, places, weight))
    steps, live, context = np.concatenate(pieces, axis=1)
    return DecodeLoad(steps, live * weight, context)


def _as_many(lengths: Sequence[int], rows: float) -> Sequence[int]:
    """As many lengths as rows, ``MOST_ROWS`` at most: unchanged if their number fits, else evenly spaced ones."""
    count = max(1, min(round(rows), MOST_ROWS))
    if len(lengths) == count:
        return lengths
    ordered = sorted(lengths)
    step = next(s for s in range(max(1, round(count * 0.618)), 2 * count + 2) if math.gcd(s, count) == 1)
    picked = [ordered[int((i + 0.5) * len(ordered) / count)] for i in range(count)]
    return [picked[(i * step) % count] for i in range(count)]


def _parts(lengths: Sequence[int], count: int) -> list[Sequence[int]]:
    """Consecutive shares, none of them empty."""
    count = max(1, min(count, len(lengths)))
    cuts = [round(i * len(lengths) / count) for i in range(count + 1)]
    return [lengths[a:b] for a, b in itertools.pairwise(cuts) if b > a]


def _static(share: Sequence[int], places: int, weight: float) -> Pieces:
    """Every row is computed until the longest has ended; more rows than places run one after the other."""
    rounds = max(1, math.ceil(len(share) * weight / max(1, places)))
    longest = float(max(share))
    return np.array([[longest * rounds], [len(share) / rounds], [longest / 2]])


def _queued(share: Sequence[int], places: int) -> Pieces:
    """A row starts where the first place becomes free."""
    free = [0] * min(places, len(share))
    spans = []
    for length in share:
        start = heapq.heappop(free)
        spans.append((start, start + length))
        heapq.heappush(free, start + length)
    ends = sorted({end for _, end in spans})
    cuts = ends if len(ends) <= SEGMENTS else [ends[round((i + 1) * len(ends) / SEGMENTS) - 1] for i in range(SEGMENTS)]
    starts, stops = (np.array(column, dtype=np.float64) for column in zip(*spans, strict=True))
    until = np.array(cuts, dtype=np.float64)[:, None]
    since = np.concatenate([np.zeros((1, 1)), until[:-1]])
    low, high = np.maximum(starts, since), np.minimum(stops, until)
    held = np.maximum(high - low, 0.0)
    total, grown = held.sum(axis=1), (held * ((low + high) / 2 - starts)).sum(axis=1)
    some, steps = total > 0, (until - since)[:, 0]
    return np.stack([steps[some], total[some] / steps[some], grown[some] / total[some]])
