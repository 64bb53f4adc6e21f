"""What each knob did to phases and peaks, over the trials of a finished study.

``python -m benchmarks.every_knob HOME STUDY`` prints a Markdown table of the trials, and one of effects: each value of
a knob against the knob's first value, with the other knobs held (least squares over the trials' logarithms, so an
effect is a factor). A factor without repeats has no interval here; it is for looking, not for ranking.

The study: ``autotune start --space benchmarks/every_knob.yaml --ranks 2 --sampler random --max-trials 24
--effective-batch 8 ...``; a recorded one is ``benchmarks/tables/every-knob-cpu.md``.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from autotune.domain import CycleRecord, Trial
from autotune.errors import AutotuneError
from autotune.settings import read_settings
from autotune.store import open_store
from search_spaces.configuration import KnobValue
from search_spaces.space import SearchSpace

PHASES = ("generate", "sync", "logprob", "update")
Figure = Callable[[Trial], float | None]


def seconds(phase: str) -> Figure:
    """Mean seconds of a phase in a recorded-length cycle."""
    return lambda trial: _mean([c.phases.get(phase, 0.0) for c in trial.speed_cycles()])


def peak(phase: str) -> Figure:
    """Highest host memory of a rank in a phase, GiB, maximum-length warm-up included."""

    def figure(trial: Trial) -> float | None:
        found = [c.peaks[phase].host for c in trial.cycles if phase in c.peaks and c.peaks[phase].host is not None]
        return max(found) / 2**30 if found else None  # type: ignore[type-var, operator]  # the Nones are left out

    return figure


FIGURES: Mapping[str, Figure] = {
    "tokens/h": lambda trial: trial.tokens_per_hour,
    **{f"{phase} s": seconds(phase) for phase in PHASES},
    **{f"{phase} GiB": peak(phase) for phase in ("generate", "update")},
    "tree GiB": lambda trial: None if trial.host_peak is None else trial.host_peak / 2**30,
}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def searched(space: SearchSpace, trials: Sequence[Trial]) -> dict[str, list[KnobValue]]:
    """Knobs of which at least two values ran, with their values in the space's order."""
    found: dict[str, list[KnobValue]] = {}
    for name, values in space.values.items():
        ran = {t.configuration.get(name) for t in trials}
        kept = [v for v in values if v in ran]
        if len(kept) > 1:
            found[name] = kept
    return found


def trials_table(trials: Sequence[Trial], knobs: Mapping[str, Sequence[KnobValue]]) -> list[str]:
    """A row for each trial, failures with their cause."""
    lines = ["| # | " + " | ".join([*knobs, *FIGURES, "cache", "preempted", "outcome"]) + " |"]
    lines.append("|" + "---|" * (len(knobs) + len(FIGURES) + 4))
    for trial in trials:
        figures = [figure(trial) for figure in FIGURES.values()]
        shown = ["-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}" for value in figures]
        cache, preempted = _engine(trial.cycles)
        outcome = _ended(trial)
        row = [str(trial.configuration.get(name, "")) for name in knobs]
        lines.append("| " + " | ".join([str(trial.number), *row, *shown, cache, preempted, outcome]) + " |")
    return lines


def _ended(trial: Trial) -> str:
    if trial.outcome is None:
        return trial.state.value
    if not trial.outcome.ok:
        return trial.outcome.sentence()[:60]
    return f"at most {trial.outcome.ceiling.at_most:,.0f}" if trial.outcome.ceiling else "emulated" * trial.emulated


def _engine(cycles: Sequence[CycleRecord]) -> tuple[str, str]:
    usage = [c.cache_usage for c in cycles if c.cache_usage is not None]
    if not usage:
        return "-", "-"
    return f"{max(usage):.0%}", str(sum(c.preemptions or 0 for c in cycles))


def effects(trials: Sequence[Trial], knobs: Mapping[str, Sequence[KnobValue]], figure: Figure) -> dict[str, float]:
    """``knob=value`` -> factor against the knob's first value, the other knobs held; without emulated trials."""
    held = [(t, value) for t in trials if not t.emulated and (value := figure(t)) is not None and value > 0]
    ran = {(name, t.configuration.get(name)) for t, _ in held for name in knobs}
    columns = [(name, v) for name, values in knobs.items() for v in values[1:] if (name, v) in ran]
    if len(held) <= len(columns) + 1:
        return {}
    design = [[1.0, *(float(t.configuration.get(name) == value) for name, value in columns)] for t, _ in held]
    solved, *_ = np.linalg.lstsq(np.array(design), np.log([value for _, value in held]), rcond=None)
    return {f"{name}={value}": float(np.exp(b)) for (name, value), b in zip(columns, solved[1:], strict=True)}


def show(home: Path, name: str) -> None:
    """Print both tables.

    Raises:
        NotFoundError: there is no such study.
    """
    store = open_store(read_settings(home=home).database)
    study = store.study(name)
    trials = store.trials(study.id)
    store.close()
    knobs = searched(SearchSpace.from_json(study.spec.space), trials)
    print("\n".join(trials_table(trials, knobs)), "\n")
    found = {label: effects(trials, knobs, figure) for label, figure in FIGURES.items()}
    print("| against the first value | " + " | ".join(found) + " |")
    print("|" + "---|" * (len(found) + 1))
    for knob, values in knobs.items():
        for value in values[1:]:
            key = f"{knob}={value}"
            cells = [f"x{one[key]:.2f}" if key in one else "-" for one in found.values()]
            print(f"| {key} (first: {values[0]}) | " + " | ".join(cells) + " |")


def main(arguments: Sequence[str]) -> int:
    """The command: exit code 2, with one sentence, where it was not given a study that there is."""
    if len(arguments) != 2:
        print("usage: python -m benchmarks.every_knob HOME STUDY", file=sys.stderr)
        return 2
    try:
        show(Path(arguments[0]), arguments[1])
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
