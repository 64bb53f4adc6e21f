"""How well does the memory model foretell peaks? Stored studies, replayed trial by trial.

``python -m benchmarks.memory_model HOME [STUDY ...] [--also HOME ...]``, or ``--table FILE`` for a recorded
table: its baseline, then its rows in an order of chance, and so ``--orders`` times

Of each study the model (``autotune.proposals.memory``) is fitted on the first k finished trials (0, 1, 3, 5, 10) and
asked about every later trial that was measured through the worst case and whose configuration is not among those k.
Beside it, the nearest of the k: the peak of the measured trial that differs in the fewest knobs (the mean of equals).
0 is the formulas alone. Printed are

* the errors, as shares of the measured peak and of what of it comes after loading (peak less imports, weights and
  engine, these by formula: no floor is recorded);
* the share of peaks inside the model's 50, 80 and 95 % intervals;
* false fits: with limits set at quantiles of the study's own peaks, and every earlier trial above a limit retold as one
  that ran out of memory there, the share of trials within 10 % of the limit that were called fitting and were above it,
  and of those that were refused and would have fit: with P above 0.9, from which a configuration is said to fit
  (``forecasts.SURE``: in a plan, and by a search until five trials held), above 0.6, which the search risks from then
  on (``autotune.proposals.choice``), and, to see between, above one half and 0.75. Last, the share of those near
  the limit that are said to fit which were above it: of few, for most that close are not said to.

A study counts in its own rows and once in the row of all. Trials of a study share a machine and a model, so what is
printed last is of few independent cases; it says how many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.domain import FailureReason, Outcome, Phase, Pool, Study, Trial, TrialState
from autotune.errors import AutotuneError
from autotune.proposals.choice import LESS_SURE
from autotune.proposals.forecasts import SURE, Task
from autotune.proposals.memory import PARTS, MemoryModel, Part, features, pools
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.recorded_tables import RecordedTable, read

FIRST = (0, 1, 3, 5, 10)
"""Trials the model is fitted on."""
QUANTILES = (0.25, 0.5, 0.75)
"""Of a study's peaks: the limits false fits are counted at."""
NEAR = 0.10
"""Share of the limit within which a trial counts as near it."""
EDGES = (0.5, LESS_SURE, SURE)
"""Probabilities above which a trial is taken to fit."""
INTERVALS = {0.5: 0.6745, 0.8: 1.2816, 0.95: 1.9600}
"""Two-sided share of a normal distribution -> its half width in standard deviations."""
LOADED = (Part.PROCESSES, Part.WEIGHTS)


@dataclass(frozen=True)
class Replay:
    """A study's trials as they came."""

    name: str
    task: Task
    trials: tuple[Trial, ...]
    pool: Pool

    def peak(self, trial: Trial) -> int | None:
        """Bytes, of a trial that went through the worst case."""
        return trial.peak(self.pool) if trial.fits else None


@dataclass(frozen=True)
class Guess:
    """One trial foretold from k others; bytes."""

    k: int
    peak: float
    predicted: float
    spread: float
    nearest: float | None
    loaded: float

    @property
    def error(self) -> float:
        """Share of the peak."""
        return abs(self.predicted / self.peak - 1.0)

    @property
    def error_after_load(self) -> float:
        """Share of the peak less what is there after loading."""
        return abs(self.predicted - self.peak) / max(1.0, self.peak - self.loaded)

    @property
    def nearest_error(self) -> float:
        """NaN where nothing had been measured."""
        return abs(self.nearest / self.peak - 1.0) if self.nearest else float("nan")


@dataclass(frozen=True)
class Verdict:
    """Whether one trial near a limit was said to fit, and did."""

    k: int
    said: float
    fits: bool


def replays(home: Path, names: Sequence[str]) -> list[Replay]:
    """Studies of a home with at least two measured configurations; raises ``StoreError`` for an unknown name."""
    store = open_store(read_settings(home=home).database)
    try:
        studies = [store.study(name) for name in names] if names else list(store.studies())
        found = [replay(study, store.trials(study.id)) for study in studies]
    finally:
        store.close()
    return [r for r in found if len({t.configuration for t in r.trials if r.peak(t)}) > 1]


def replay(study: Study, trials: Iterable[Trial]) -> Replay:
    """A study's finished trials in the order of their numbers."""
    task = Task.of(study.spec)
    ordered = sorted((t for t in trials if t.state.is_finished), key=lambda t: t.number)
    return Replay(study.spec.name, task, tuple(ordered), pools(task)[0])


def shuffled(table: RecordedTable, orders: int) -> list[Replay]:
    """A recorded table as that many studies, which begin with the baseline and go through the rows by chance."""
    header = table.header
    task = Task(
        resources=header.resources,
        rows_per_update=header.rows_per_update,
        max_prompt_length=header.max_prompt_length,
        max_completion_length=header.max_completion_length,
        passthrough=header.passthrough,
        memory_limit=header.memory_limit,
    )
    first = [trial for trial in table.trials if trial.configuration == header.baseline]
    others = [trial for trial in table.trials if trial.configuration != header.baseline]
    found = []
    for seed in range(orders):
        order = np.random.default_rng(seed).permutation(len(others)).tolist()
        trials = [*first, *(others[i] for i in order)]
        numbered = tuple(trial.with_(number=number) for number, trial in enumerate(trials))
        found.append(Replay(table.name, task, numbered, pools(task)[0]))
    return found


def guesses(r: Replay) -> list[Guess]:
    """Every later trial from the first k."""
    found = []
    for k in (k for k in FIRST if k < len(r.trials)):
        model = MemoryModel.before(r.task).fitted(r.task, r.trials[:k])
        known = {t.configuration for t in r.trials[:k]}
        later = [t for t in r.trials[k:] if r.peak(t) and t.configuration not in known]
        asked = [t.configuration for t in later]
        matrix, forecast = features(r.task, asked), model.forecast(asked)
        loaded = matrix[0][:, 0, [PARTS.index(part) for part in LOADED]].sum(axis=1)
        for place, trial in enumerate(later):
            near = nearest(r, trial, r.trials[:k])
            peak, spread = float(forecast.peak[place]), float(forecast.spread[place])
            found.append(Guess(k, float(r.peak(trial) or 0), peak, spread, near, float(loaded[place])))
    return found


def nearest(r: Replay, trial: Trial, known: Sequence[Trial]) -> float | None:
    """Bytes of the measured trial that differs in the fewest knobs; the mean of equals; ``None`` without one."""
    measured = [(len(t.configuration.difference(trial.configuration)), p) for t in known if (p := r.peak(t))]
    closest = min((d for d, _ in measured), default=0)
    peaks = [p for d, p in measured if d == closest]
    return float(np.mean(peaks)) if peaks else None


def verdicts(r: Replay) -> list[Verdict]:
    """Of trials near a limit, with limits at quantiles of the study's peaks; only where the tree's memory counts."""
    if r.pool is not Pool.HOST:
        return []
    peaks = [p for t in r.trials if (p := r.peak(t))]
    found = []
    for limit in sorted({int(np.quantile(peaks, q)) for q in QUANTILES}):
        task = replace(r.task, memory_limit=limit)
        relabelled = [as_limited(t, r.peak(t), limit) for t in r.trials]
        for k in (k for k in FIRST if k < len(relabelled)):
            model = MemoryModel.before(task).fitted(task, relabelled[:k])
            known = {t.configuration for t in relabelled[:k]}
            near = [
                (t, p)
                for t in r.trials[k:]
                if (p := r.peak(t)) and abs(p / limit - 1.0) <= NEAR and t.configuration not in known
            ]
            fits = model.forecast([t.configuration for t, _ in near]).fits
            found += [Verdict(k, float(said), p <= limit) for said, (_, p) in zip(fits, near, strict=True)]
    return found


def as_limited(trial: Trial, peak: int | None, limit: int) -> Trial:
    """``trial`` as it would have ended under ``limit``."""
    if peak is None or peak <= limit:
        return trial
    outcome = Outcome(FailureReason.OOM, Phase.UPDATE.value, Pool.HOST)
    return trial.with_(state=TrialState.FAIL, outcome=outcome, cycles=(), watchdog_peak=limit, worst_case_passed=False)


def errors_table(name: str, found: Sequence[Guess]) -> str:
    """Errors by number of trials, one line each."""
    lines = []
    for k in sorted({g.k for g in found}):
        own = [g for g in found if g.k == k]
        errors = np.array([g.error for g in own])
        cells = [
            f"{name:28.28}",
            f"{k:2d}",
            f"{len(own):4d}",
            f"{_share(errors.mean())}",
            f"{_share(np.median(errors))}",
            f"{_share(errors.max())}",
            f"{_share(np.mean([g.error_after_load for g in own]))}",
            f"{_share(np.mean([g.nearest_error for g in own]))}",
            *(_share(_inside(own, width)) for width in INTERVALS.values()),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _inside(own: Sequence[Guess], width: float) -> float:
    return float(np.mean([abs(np.log(g.peak / g.predicted)) <= width * g.spread for g in own]))


def _share(value: float | np.floating[Any]) -> str:
    return "   -  " if np.isnan(value) else f"{100.0 * float(value):5.1f}%"


def fit_table(found: Sequence[Verdict]) -> str:
    """False fits and false refusals near a limit, by number of trials."""
    lines = []
    for k in sorted({v.k for v in found}):
        own = [v for v in found if v.k == k]
        above = sum(not v.fits for v in own)
        shares = [np.mean([v.said > edge and not v.fits for v in own]) for edge in EDGES]
        refused = [np.mean([v.said <= edge and v.fits for v in own]) for edge in EDGES]
        said = [v for v in own if v.said > SURE]
        wrong = np.mean([not v.fits for v in said]) if said else np.nan
        cells = [f"{k:2d}", f"{len(own):4d}", f"{above:4d}", *map(_share, [*shares, *refused, wrong])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


HEADER = (
    "| study                        | k  |    n | mean   | median | most   | past load | nearest | in 50% | in 80% "
    "| in 95% |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
_SAYS = [f"false {what} {sign} {edge:g}" for what, sign in (("fit", ">"), ("refusal", "<=")) for edge in EDGES]
_SAYS.append(f"wrong of those > {SURE:g}")
FIT_HEADER = f"| k  | near | above | {' | '.join(_SAYS)} |\n|{'---|' * (3 + len(_SAYS))}"


def report(found: Sequence[Replay]) -> str:
    """What the command prints; replays of one name are one line for each k."""
    each: dict[str, list[Guess]] = {}
    for r in found:
        each.setdefault(r.name, []).extend(guesses(r))
    lines = [HEADER, *(errors_table(name, own) for name, own in each.items())]
    if len(each) > 1:
        lines.append(errors_table("all", [g for own in each.values() for g in own]))
    lines += ["", FIT_HEADER, fit_table([v for r in found for v in verdicts(r)])]
    measured = {(r.name, t.configuration) for r in found for t in r.trials if r.peak(t)}
    lines.append(f"\n{len(each)} studies, {len(measured)} measured configurations, {len(found)} orders.")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, nargs="?")
    parser.add_argument("studies", nargs="*")
    parser.add_argument("--also", type=Path, action="append", default=[], help="another home, with all its studies")
    parser.add_argument("--table", type=Path, action="append", default=[], metavar="FILE", help="a recorded table")
    parser.add_argument("--orders", type=int, default=20, metavar="N", help="of the rows of each table (20)")
    asked = parser.parse_args()
    if asked.home is None and not asked.table:
        parser.error("name a home or --table")
    found = [] if asked.home is None else replays(asked.home, asked.studies)
    for home in asked.also:
        found += replays(home, ())
    try:
        for file in asked.table:
            found += shuffled(read(file), asked.orders)
    except AutotuneError as error:
        parser.error(str(error))
    if not found:
        raise SystemExit("no study there has two measured configurations")
    print(report(found))


if __name__ == "__main__":
    main()
