"""The noise that was recorded: what processes of one configuration, and cycles of one process, differed by."""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import CycleKind, Trial
from autotune.domain.trials import still_warming
from benchmarks.gpu.journal import rows, trial_of
from trainer.child.contract import encode

Array = NDArray[np.float64]
TABLES = Path(__file__).parents[1] / "tables"
CYCLES = 3
"""Of a synthetic trial, as of a search trial without looks."""
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


def recordings(folder: Path = TABLES) -> list[Recording]:
    """Everything in the recorded tables that was measured more than once."""
    tables = [_of_table(path) for path in sorted(folder.glob("search-cpu-*.jsonl.gz"))]
    patterns = tuple(pattern for one in tables for pattern in one.patterns)
    cycles = statistics.fmean(one.cycles for one in tables)
    gpu = [_of_studies(name, sorted(folder.glob(pattern))) for name, pattern in H100_STUDIES]
    return [*gpu, *tables, _of_rounds(folder / "defaults-cpu.md", patterns, cycles)]


def _of_table(path: Path) -> Recording:
    """A sweep: its fastest rows were run again in rounds."""
    with gzip.open(path, "rt") as stream:
        rows_of = [row for line in stream if (row := json.loads(line))["row"] == "trial"]
    held = [[(at, run) for at, run in enumerate(row["repeats"]) if run["tokens_per_hour"]] for row in rows_of]
    groups = [group for group in held if len(group) > 1]
    runs = [_timed(run["cycles"]) for row in rows_of for run in (row, *row["repeats"]) if run["state"] == "COMPLETE"]
    logs = [[(at, math.log(run["tokens_per_hour"])) for at, run in group] for group in groups]
    cycles = _explained(_timed(run["cycles"]) for group in groups for _, run in group)
    return _made(path.name.removesuffix(".jsonl.gz"), logs, _patterns(runs), cycles, on_gpu=False)


def _of_studies(name: str, paths: Sequence[Path]) -> Recording:
    """Studies: configurations that were searched and confirmed. There are too few to tell drifts from processes."""
    groups: dict[object, list[Trial]] = {}
    for path in paths:
        for row in rows(path):
            trial = trial_of(row, str(path)) if row.get("row") == "trial" else None
            if trial is not None and trial.feasible:
                groups.setdefault((path, trial.configuration), []).append(trial)
    repeated = [group for group in groups.values() if len(group) > 1]
    logs = [[(-1, math.log(trial.tokens_per_hour or 1.0)) for trial in group] for group in repeated]
    patterns = _patterns(_timed(encode(t.cycles)) for group in groups.values() for t in group)
    return _made(name, logs, patterns, _explained(_timed(encode(t.cycles)) for g in repeated for t in g), on_gpu=True)


def _of_rounds(path: Path, patterns: Sequence[Array], cycles: float) -> Recording:
    """Fresh processes next to each other, without their cycles: those are taken from the tables."""
    groups = []
    for number, found in enumerate(BY_ROUND.finditer(path.read_text())):
        for words in found["runs"].split(";"):
            figures = re.findall(r"\d[\d,]*\d", words)
            groups.append([(3 * number + at, math.log(float(one.replace(",", "")))) for at, one in enumerate(figures)])
    return _made(path.stem, groups, patterns, cycles, on_gpu=False)


def _made(
    name: str, groups: Sequence[Sequence[tuple[int, float]]], patterns: Sequence[Array], cycles: float, *, on_gpu: bool
) -> Recording:
    """``groups``: of each configuration, (round, log speed) of its processes; -1 for a round of its own."""
    means = [statistics.fmean(log for _, log in group) for group in groups]
    away: dict[int, list[float]] = {}
    for group, mean in zip(groups, means, strict=True):
        for at, log in group:
            away.setdefault(at, []).append(log - mean)
    rounds = {at: statistics.fmean(logs) if at >= 0 else 0.0 for at, logs in away.items()}
    left = np.array([log - rounds[at] for at, logs in away.items() for log in logs])
    drifts = np.array([drift for at, drift in rounds.items() if at >= 0] or [0.0])
    degrees = len(left) - len(groups) - max(0, len(drifts) - 1)
    variance = float((left**2).sum() / degrees)
    return Recording(
        name=name,
        on_gpu=on_gpu,
        processes=left * math.sqrt(len(left) / degrees),
        patterns=tuple(patterns),
        drifts=drifts,
        variance=variance,
        degrees=float(degrees),
        cycles=cycles,
    )


def _timed(cycles: Iterable[Mapping[str, Any]]) -> Array:
    """Log speeds of the recorded cycles that were accepted, as stored."""
    kept = (c for c in cycles if c["cycle_kind"] == CycleKind.RECORDED.value and c["accepted"] and not c["rank"])
    return np.array([math.log(c["completion_tokens"] / c["seconds"]) for c in kept])


def _patterns(runs: Iterable[Array]) -> tuple[Array, ...]:
    return tuple(logs[:CYCLES] - logs[:CYCLES].mean() for logs in runs if len(logs) >= CYCLES)


def _explained(runs: Iterable[Array]) -> float:
    """What cycles leave open about their mean, warm-ups left out; the mean over the processes."""
    steady = (logs[still_warming([math.exp(-log) for log in logs]) :] for logs in runs)
    return statistics.fmean(statistics.variance(logs.tolist()) / len(logs) for logs in steady if len(logs) > 1)
