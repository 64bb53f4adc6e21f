"""Completion lengths of a cycle, and the decode steps and tokens that follow from them. Pure.

With continuous batching a waiting row takes the place of a finished one; without, every row is computed until the
longest of its generation has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotune.proposals.forecasts import Column, Task

PRESUMED_SHARE = 0.5
"""Mean completion and mean prompt, of the longest allowed, where nothing is recorded."""
QUANTILES = 256
"""Lengths that stand for a presumed distribution, at most."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of a cycle's rows, in tokens."""

    completions: tuple[int, ...]
    """Those of a recorded cycle; another number of rows has the same distribution."""
    prompt: float
    """Mean."""
    width: float
    """Width of a prompt with padding."""
    presumed: bool = False
    """Nothing was recorded."""

    @property
    def mean(self) -> float:
        """Mean completion."""
        return float(np.mean(self.completions))


def presumed(task: Task) -> Lengths:
    """Returns a task's lengths before any trial: its own, else exponential with a mean of half the limit."""
    limit = max(1, task.max_completion_length)
    prompt = task.prompt_tokens if task.prompt_tokens else max(1.0, PRESUMED_SHARE * task.max_prompt_length)
    if task.lengths:
        return Lengths(tuple(task.lengths), prompt, prompt)
    rows = max(1, min(task.rows_per_update, QUANTILES))
    return Lengths(heavy_tailed(rows, limit, PRESUMED_SHARE * limit), prompt, prompt, presumed=True)


@lru_cache(maxsize=64)
def heavy_tailed(rows: int, limit: int, mean: float) -> tuple[int, ...]:
    """Returns quantiles of an exponential distribution cut at ``limit``, of about this mean."""
    levels = -np.log1p(-(np.arange(rows) + 0.5) / rows)
    low, high = 0.0, 64.0 * limit
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.clip(middle * levels, 1, limit).mean() < mean else (low, middle)
    return tuple(np.clip(np.rint(high * levels), 1, limit).astype(int).tolist())


def longest(completions: tuple[int, ...], rows: Column) -> Column:
    """Returns the expected longest of ``rows`` completions that are drawn without replacement."""
    several, place = np.unique(np.atleast_1d(rows), return_inverse=True)
    return np.array([_longest(completions, n) for n in several.tolist()])[place.reshape(-1)]


@lru_cache(maxsize=512)
def _longest(completions: tuple[int, ...], rows: float) -> float:
    """Returns ``longest``: the n-th shortest of N is the longest or longer with probability C(n, rows) / C(N, rows)."""
    ranks = np.arange(len(completions), 0, -1, dtype=np.float64)
    below = np.cumprod(np.maximum(ranks - max(1.0, rows), 0.0) / ranks)
    chances = np.concatenate([[1.0], below[:-1]]) - below
    return float(np.sort(np.array(completions, dtype=np.float64))[::-1] @ chances)


def decoding(
    lengths: Lengths, rows: Column, replicas: Column, places: Column, continuous: Column
) -> tuple[Column, Column, Column]:
    """Returns the decode steps of one generation on the replica with the longest of its ``rows``, ``places`` at a time,
    the mean number of rows in a step, and the mean number of tokens such a row has generated."""
    end, rows = longest(lengths.completions, rows), rows / replicas
    whole = np.array(lengths.completions, dtype=np.float64)
    kept = continuous > 0
    steps = np.where(kept, np.maximum(end, rows * lengths.mean / places), end * np.maximum(1.0, np.ceil(rows / places)))
    live = rows * np.where(kept, lengths.mean, end) / steps
    context = np.where(kept, float(np.mean(whole**2)) / lengths.mean, end) / 2.0
    return steps, live, context
