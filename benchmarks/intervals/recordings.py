"""The noise that was recorded: what processes of one configuration, and cycles of one process, differed by."""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain.trials import still_warming

Array = NDArray[np.float64]
Cycle = Mapping[str, Any]
Groups = Sequence[Sequence[tuple[int, float]]]
"""Of each configuration, (round, log speed) of its processes; -1 for a round of its own."""
TABLES = Path(__file__).parents[1] / "tables"
SWEEPS = "search-cpu-*.jsonl.gz"
CYCLES = 3
"""Of a trial without looks."""
ENOUGH = 20
"""Recorded processes from which others are drawn; of fewer only the spread is taken, and the shape from the CPUs'."""
BY_ROUND = re.compile(r"^By round, tokens/hour:(?P<runs>.*?)\.\s", re.DOTALL | re.MULTILINE)
H100_STUDIES = (
    ("H100, 2026-11-22", "h100-study-*-2026-11-22.jsonl"),
    ("H100, 2026-11-27", "h100-eight-minutes-2026-11-27.jsonl"),
)


@dataclass(frozen=True)
class Recording:
    """One machine and workload. Natural logarithms of speed throughout."""

    name: str
    on_gpu: bool
    processes: Array
    """Of each process, its distance from its configuration's mean, times what the estimated mean takes from it."""
    patterns: tuple[Array, ...]
    """Of each trial, the distances of its first ``CYCLES`` timed cycles from their mean, in order."""
    drifts: Array
    """Of each round, the distance of the machine's speed from its mean."""
    variance: float
    """Between the means of processes, what their cycles leave open included."""
    degrees: float
    """Of it."""
    cycles: float
    """The part of it that cycles explain."""


def recordings() -> list[Recording]:
    """Reads everything in the recorded tables that was measured more than once."""
    gpu = [_read(name, sorted(TABLES.glob(pattern)), on_gpu=True) for name, pattern in H100_STUDIES]
    sweeps = [_read(path.name.split(".")[0], [path], on_gpu=False) for path in sorted(TABLES.glob(SWEEPS))]
    patterns = tuple(pattern for one in sweeps for pattern in one.patterns)
    cycles = statistics.fmean(one.cycles for one in sweeps)
    return [*gpu, *sweeps, _recording("defaults-cpu", _rounds_in_words(), patterns, cycles, on_gpu=False)]


def pool_of(one: Recording, every: Sequence[Recording]) -> Array:
    """Distances from which a process of ``one`` is drawn."""
    if len(one.processes) >= ENOUGH:
        return one.processes
    shape = np.concatenate([r.processes / math.sqrt(r.variance) for r in every if len(r.processes) >= ENOUGH])
    return math.sqrt(one.variance) * shape


def trial_rows(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Trials of sweeps and of recorded studies."""
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
            yield from (row for line in stream if (row := json.loads(line))["row"] == "trial")


def runs_of(paths: Iterable[Path]) -> list[list[Cycle]]:
    """The cycles of each trial, and of each time that it ran again."""
    return [run["cycles"] for row in trial_rows(paths) for run in (row, *row.get("repeats", ()))]


def _read(name: str, paths: Sequence[Path], *, on_gpu: bool) -> Recording:
    """A sweep's fastest rows ran again in rounds. Of studies there are too few to tell drifts from processes."""
    groups: dict[str, list[tuple[int, Array]]] = {}
    for number, row in enumerate(trial_rows(paths)):
        runs = enumerate(row["repeats"]) if "repeats" in row else [(-1, row)]
        key = str(number) if "repeats" in row else json.dumps(row["configuration"])
        steady = [(at, _steady(_timed(run["cycles"]))) for at, run in runs if run["tokens_per_hour"]]
        groups.setdefault(key, []).extend((at, logs) for at, logs in steady if len(logs))
    repeated = [group for group in groups.values() if len(group) > 1]
    variances = [statistics.variance(logs) / len(logs) for group in repeated for _, logs in group if len(logs) > 1]
    speeds = [[(at, -math.log(float(np.exp(-logs).mean()))) for at, logs in group] for group in repeated]
    timed = [logs for run in runs_of(paths) if len(logs := _timed(run)) >= CYCLES]
    patterns = tuple(logs[:CYCLES] - logs[:CYCLES].mean() for logs in timed)
    return _recording(name, speeds, patterns, statistics.fmean(variances), on_gpu=on_gpu)


def _rounds_in_words() -> Groups:
    """Fresh processes next to each other, of whose cycles nothing is recorded."""
    groups = []
    for number, match in enumerate(BY_ROUND.finditer((TABLES / "defaults-cpu.md").read_text())):
        for words in match["runs"].split(";"):
            figures = re.findall(r"\d[\d,]*\d", words)
            groups.append([(3 * number + at, math.log(float(one.replace(",", "")))) for at, one in enumerate(figures)])
    return groups


def _recording(name: str, groups: Groups, patterns: tuple[Array, ...], cycles: float, *, on_gpu: bool) -> Recording:
    means = [statistics.fmean(log for _, log in group) for group in groups]
    away: dict[int, list[float]] = {}
    for group, mean in zip(groups, means, strict=True):
        for at, log in group:
            away.setdefault(at, []).append(log - mean)
    rounds = {at: statistics.fmean(logs) if at >= 0 else 0.0 for at, logs in away.items()}
    rest = np.array([log - rounds[at] for at, logs in away.items() for log in logs])
    drifts = np.array([drift for at, drift in rounds.items() if at >= 0] or [0.0])
    degrees = len(rest) - len(groups) - max(0, len(drifts) - 1)
    variance = float((rest**2).sum() / degrees)
    processes = rest * math.sqrt(len(rest) / degrees)
    return Recording(name, on_gpu, processes, patterns, drifts, variance, float(degrees), cycles)


def _timed(cycles: Iterable[Cycle]) -> Array:
    """Log speeds of the recorded cycles that were accepted, as stored."""
    own = (c for c in cycles if c["cycle_kind"] == "recorded" and c["accepted"] and not c["rank"])
    return np.array([math.log(c["completion_tokens"] / c["seconds"]) for c in own])


def _steady(logs: Array) -> Array:
    """Without a warm-up."""
    return logs[still_warming([math.exp(-log) for log in logs]) :]
