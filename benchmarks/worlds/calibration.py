"""Judges the forecasts after a few trials: of drawn candidates that are legal and fit, the share whose true seconds lie
within the interval stated at 95 %."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from autotune.domain import Budget, Trial, TrialKind
from autotune.store import open_store
from autotune.study.loop import StudyLoop
from benchmarks.decisions.runner import SimulatedClock
from benchmarks.decisions.studies import Place, Watching, runners_of
from benchmarks.worlds import product
from benchmarks.worlds.arms import ARMS

TRIALS, DRAWN = 8, 500
"""Search trials before it is asked, where nothing else is said, and candidates asked about."""
WITHIN = 1.96


def figures(place: Place, seeds: range, trials: int = TRIALS) -> dict[str, float]:
    """Means over studies of the product's sampler: the share of intervals that hold, among all and among the fastest
    tenth; the correlation of ranks; and of those said to fit with 0.9, the share that does not. ``trials`` of the
    search come before it; with 0, nothing is measured, as in a plan."""
    found = [_figures(place, seed, after(place, seed, trials) if trials else ()) for seed in seeds]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _figures(place: Place, seed: int, history: tuple[Trial, ...]) -> dict[str, float]:
    drawn = random.Random(f"calibration/{seed}").sample(place.candidates, 4 * DRAWN)  # noqa: S311 - repeatable
    log_seconds, spread, fits = product.forecast(place, history, drawn)
    true_fits = np.array([place.machine.fits(c) for c in drawn])
    asked = np.flatnonzero(true_fits == 1.0)[:DRAWN]
    truth = np.log([place.seconds(drawn[i]) for i in asked])
    off = np.abs(truth - log_seconds[asked]) <= WITHIN * spread[asked]
    fastest = truth <= np.quantile(truth, 0.1)
    ranks = np.corrcoef(np.argsort(np.argsort(truth)), np.argsort(np.argsort(log_seconds[asked])))[0, 1]
    sure = fits >= 0.9
    return {
        "held_share": float(off.mean()),
        "held_share_of_fastest": float(off[fastest].mean()),
        "rank_correlation": float(ranks),
        "log_error": float(np.std(truth - log_seconds[asked])),
        "sure_that_fail": float(1.0 - true_fits[sure].mean()) if sure.any() else 0.0,
    }


def after(place: Place, seed: int, trials: int) -> tuple[Trial, ...]:
    """The first trials of a study without a limit of time."""
    clock, store, watching = SimulatedClock(), open_store(":memory:"), Watching()
    study = store.create_study(place.spec, clock.now())
    (runner,) = runners_of(place, clock, seed, 1)
    loop = StudyLoop(
        study=study, budget=Budget(max_trials=1 + trials), store=store, proposer=ARMS["ours"](place, seed),
        runner=runner, clock=clock, observer=watching, stop=watching, directory_of=lambda t: Path(str(t.number)),
    )  # fmt: skip
    try:
        ran = loop.run().trials
    finally:
        store.close()
    return tuple(t for t in ran if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH))[: 1 + trials]
