"""What recordings say: the prior of the process variance, warm-ups, and what the guard sees of a slow cycle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.domain.trials import still_warming
from autotune.statistics.noise import GPU_PROCESS, PROCESS, NoisePrior
from benchmarks.gpu.journal import trial_of
from benchmarks.intervals import product
from benchmarks.intervals.recordings import SWEEPS, TABLES, Array, Recording, runs_of, trial_rows
from benchmarks.intervals.sight import DISTURBED, disturbed_runs, slope_of

SPREADS = np.geomspace(0.005, 1.0, 160)
SCALES = np.geomspace(0.02, 0.3, 80)
STUDY = TABLES / "h100-eight-minutes-2026-11-27.jsonl"
MARGIN = 1.1
"""By which the presumed spread is above the likeliest."""
DEGREES = (2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0)


def presumed(every: Sequence[Recording], *, on_gpu: bool) -> NoisePrior:
    """By the recordings on such a device, but never less than all recordings show: there are few of GPUs."""
    degrees = (GPU_PROCESS if on_gpu else PROCESS).degrees
    own = [one for one in every if one.on_gpu is on_gpu]
    scales = [likeliest(some, degrees)[0].variance for some in (own, every if on_gpu else own) if some]
    return NoisePrior(MARGIN**2 * max(scales), degrees)


def likeliest(some: Sequence[Recording], degrees: float) -> tuple[NoisePrior, float]:
    """The scaled inverse chi-squared distribution with such degrees, and its log likelihood; each recording counts
    once."""
    seen = [_likelihood(one) for one in some]
    scores = [_evidence(seen, scale, degrees) for scale in SCALES]
    best = int(np.argmax(scores))
    return NoisePrior(float(SCALES[best]) ** 2, degrees), scores[best]


def _likelihood(one: Recording) -> Array:
    """Of each process spread; what the cycles explain is taken as known."""
    total = SPREADS**2 + one.cycles
    logs = -0.5 * one.degrees * (np.log(total) + one.variance / total)
    shape: Array = np.exp(logs - logs.max())
    return shape


def _evidence(seen: Sequence[Array], scale: float, degrees: float) -> float:
    variances = SPREADS**2
    logs = -0.5 * degrees * (np.log(variances / scale**2) + scale**2 / variances)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return sum(math.log(float(weights @ one)) for one in seen)


def fit_table(every: Sequence[Recording]) -> str:
    """The recordings' spreads, the likelihood of priors, warm-ups, and the guard's sight, as Markdown."""
    lines = ["| recording | processes | degrees | sd | of it cycles | of it processes |", "|---|---|---|---|---|---|"]
    for one in every:
        own = math.sqrt(max(0.0, one.variance - one.cycles))
        spreads = f"{math.sqrt(one.variance):.3f} | {math.sqrt(one.cycles):.3f} | {own:.3f}"
        lines.append(f"| {one.name} | {len(one.processes)} | {one.degrees:.0f} | {spreads} |")
    lines += ["", "| device | degrees | likeliest sd | log likelihood |", "|---|---|---|---|"]
    for name, on_gpu in (("CPU", False), ("GPU", True)):
        for degrees in DEGREES:
            prior, score = likeliest([one for one in every if one.on_gpu is on_gpu], degrees)
            lines.append(f"| {name} | {degrees:.0f} | {math.sqrt(prior.variance):.4f} | {score:.2f} |")
    steady = [p for one in every if one.name.startswith("search-cpu") for p in one.patterns]
    warming = sum(still_warming([math.exp(-log) for log in p]) > 0 for p in steady)
    lines += ["", f"Trials of the sweeps that lose a cycle as a warm-up: {warming} of {len(steady)}.", ""]
    lines += [
        "| recording | disturbed cycles | log slowdown for each unit of outside CPU | its log sd |",
        "|---|---|---|---|",
    ]
    for name, runs in ((DISTURBED.stem, disturbed_runs()), (SWEEPS, runs_of(sorted(TABLES.glob(SWEEPS))))):
        fit = slope_of(runs)
        lines.append(f"| {name} | {fit.cycles} | {fit.slope:.2f} | {fit.scatter:.2f} |")
    trials = [trial_of(row, STUDY.name) for row in trial_rows([STUDY])]
    gain = product.stated(trials, trials[-1].configuration, trials[0].configuration)
    words = "nothing" if gain is None else ", ".join(f"{math.expm1(at):+.1%}" for at in gain[:3])
    lines += ["", f"The recorded study of the H100, vLLM over TRL's defaults, one round, read again: {words}."]
    return "\n".join(lines)
