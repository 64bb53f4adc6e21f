"""Completion lengths of a cycle, and the resulting decode steps and tokens. Pure.

With continuous batching a waiting row takes the slot of a finished one, and the batch shrinks at the end. Without it,
every row is computed until the longest row of its generation has ended.
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
"""Mean completion and mean prompt, as a share of the longest allowed, if none are recorded."""
QUANTILES = 256
"""Most quantiles that stand for a presumed distribution."""
MOST_ROWS = 1024
"""Most rows of a generation that are simulated; if there are more, each row represents several."""
SEGMENTS = 24
"""Most pieces of constant load into which a generation is cut."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of a cycle's rows, in tokens."""

    completions: tuple[int, ...]
    """Lengths of a recorded cycle; another number of rows has the same distribution."""
    prompt: float
    """Mean prompt length in tokens."""
    width: float
    """Prompt length with padding, in tokens."""
    presumed: bool = False
    """True if no lengths were recorded."""

    @property
    def mean(self) -> float:
        """Mean completion length in tokens."""
        return float(np.mean(self.completions))


def presumed(task: Task) -> Lengths:
    """Returns a task's lengths before any trial: its own, else an exponential distribution around half the limit."""
    limit = max(1, task.max_completion_length)
    prompt = task.prompt_tokens if task.prompt_tokens else max(1.0, PRESUMED_SHARE * task.max_prompt_length)
    if task.lengths:
        return Lengths(tuple(task.lengths), prompt, prompt)
    rows = max(1, min(task.rows_per_update, QUANTILES))
    return Lengths(heavy_tailed(rows, limit, PRESUMED_SHARE * limit), prompt, prompt, presumed=True)


@lru_cache(maxsize=64)
def heavy_tailed(rows: int, limit: int, mean: float) -> tuple[int, ...]:
    """Returns shuffled quantiles of an exponential distribution with about this mean, truncated at ``limit``."""
    levels = -np.log1p(-(np.arange(rows) + 0.5) / rows)
    low, high = 0.0, 64.0 * limit
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.clip(middle * levels, 1, limit).mean() < mean else (low, middle)
    return _mixed(np.clip(np.rint(high * levels), 1, limit).astype(int).tolist(), rows)


def longest(completions: tuple[int, ...], rows: Column) -> Column:
    """Returns the expected maximum length of ``rows`` completions drawn without replacement."""
    several, place = np.unique(np.atleast_1d(rows), return_inverse=True)
    return np.array([_longest(completions, n) for n in several.tolist()])[place.reshape(-1)]


@lru_cache(maxsize=512)
def _longest(completions: tuple[int, ...], rows: float) -> float:
    """Computes ``longest``: the maximum is at most the n-th shortest of N with probability C(n, rows) / C(N, rows)."""
    ranks = np.arange(len(completions), 0, -1, dtype=np.float64)
    below = np.cumprod(np.maximum(ranks - max(1.0, rows), 0.0) / ranks)
    chances = np.concatenate([[1.0], below[:-1]]) - below
    return float(np.sort(np.array(completions, dtype=np.float64))[::-1] @ chances)


def decoding(
    lengths: Lengths, rows: Column, replicas: Column, places: Column, continuous: Column
) -> tuple[Column, Column, Column]:
    """Simulates one generation of ``rows`` on the replica with the longest of them, in ``places`` slots. Returns
    segments of constant load: decode steps, rows in each, and mean tokens that such a row has generated. One array row
    for each case, padded with segments of no steps."""
    cases, place = np.unique(np.column_stack([rows, replicas, places, continuous > 0]), axis=0, return_inverse=True)
    found = [_load(lengths.completions, *case) for case in cases.tolist()]
    most = max((one.shape[1] for one in found), default=1)
    whole = np.zeros((len(found), 3, most))
    for one, pieces in zip(whole, found, strict=True):
        one[:, : pieces.shape[1]] = pieces
    each = whole[place.reshape(-1)]
    return each[:, 0], each[:, 1], each[:, 2]


@lru_cache(maxsize=1024)
def _load(
    completions: tuple[int, ...], rows: float, replicas: float, places: float, continuous: float
) -> NDArray[np.float64]:
    """Returns ``decoding`` of one configuration; callers must not change the array."""
    count = max(1, min(round(rows), MOST_ROWS))
    weight = max(1.0, rows / count)
    every = completions if count == len(completions) else _mixed(completions, count)
    cuts = [round(i * count / replicas) for i in range(round(replicas) + 1)]
    share = max((every[a:b] for a, b in itertools.pairwise(cuts) if b > a), key=lambda own: (max(own), sum(own)))
    if continuous:
        steps, live, context = _queued(share, max(1, int(places / weight)))
        return np.stack([steps, live * weight, context])
    rounds = max(1.0, math.ceil(len(share) * weight / places))
    return np.array([[max(share) * rounds], [len(share) * weight / rounds], [max(share) / 2]])


def _mixed(completions: Sequence[int], count: int) -> tuple[int, ...]:
    """Returns ``count`` lengths of the same distribution, alternately short and long."""
    ordered = sorted(completions)
    step = next(s for s in itertools.count(max(1, round(count * 0.618))) if math.gcd(s, count) == 1)
    picked = [ordered[int((i + 0.5) * len(ordered) / count)] for i in range(count)]
    return tuple(picked[(i * step) % count] for i in range(count))


def _queued(share: tuple[int, ...], places: int) -> tuple[Column, Column, Column]:
    """Returns the segments of a queue in which a row starts as soon as a slot becomes free."""
    free, starts = [0] * min(places, len(share)), []
    for length in share:
        starts.append(heapq.heappop(free))
        heapq.heappush(free, starts[-1] + length)
    start = np.array(starts, dtype=np.float64)
    stop = start + share
    ends = np.unique(stop)
    pieces = min(len(ends), SEGMENTS)
    until = ends[np.rint(np.arange(1, pieces + 1) * len(ends) / pieces).astype(np.intp) - 1]
    since = np.concatenate([[0.0], until[:-1]])
    low, high = np.maximum(start, since[:, None]), np.minimum(stop, until[:, None])
    held = np.maximum(high - low, 0.0)
    total = held.sum(axis=1)
    return until - since, total / (until - since), (held * ((low + high) / 2 - start)).sum(axis=1) / total
