"""How well are cycle times foretold? Recorded studies replayed: learn from the first trials, foretell the rest.

``python -m benchmarks.time_model HOME... [STUDY...] [--gpu NAME] [--probe FILE]``

Of each stored study the trials that were measured, in order. After the first k the phase-time model foretells every
later configuration that is not among them; so do the prior alone (no learnt part) and the nearest neighbour (the
measured configuration with fewest other knobs, the latest of them). The error is the absolute difference of the natural
logarithms of seconds, its median over all foretold trials of all studies given; of a phase over the trials in which it
occurred, under ``PHASES``. Coverage is the share of trials whose cycle lies in the model's own 90 % interval (its
spread, and one trial's noise): near 90 % is honest, with a few trials it is coarse.

``--probe`` is a file with what the hardware probe answered, ``--gpu`` a data sheet's name; with neither the device is
presumed from its kind, which is what the prior alone then shows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.domain import Study, Trial
from autotune.proposals.forecasts import Task
from autotune.proposals.times import Hardware, PhaseTimes, probed, sheet_of
from autotune.proposals.times.observed import LEAST_S, Measured, measured
from autotune.settings import read_settings
from autotune.store import open_store

PHASES = ("generate", "logprob", "update", "sync")
FIRST = (0, 1, 2, 3, 5, 8, 12, 20, 40, 80)
INSIDE = 1.645
"""Standard deviations of a two-sided 90 % interval."""
ARMS = ("prior", "model", "nearest")


@dataclass
class Errors:
    """After so many trials: absolute errors of log seconds by arm and phase (``cycle`` is the whole)."""

    found: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    inside: list[bool] = field(default_factory=list)
    trusted: list[bool] = field(default_factory=list)

    def add(self, arm: str, phase: str, predicted: float, seconds: float) -> None:
        """One comparison, where both are seconds of something that occurred."""
        if predicted > LEAST_S and seconds > LEAST_S:
            self.found.setdefault((arm, phase), []).append(abs(math.log(predicted / seconds)))

    def median(self, arm: str, phase: str) -> str:
        """As it is printed."""
        values = self.found.get((arm, phase), [])
        return f"{statistics.median(values):.3f}" if values else "-"


def replay(study: Study, trials: Sequence[Trial], hardware: Hardware | None, errors: dict[int, Errors]) -> int:
    """Add a study's errors to ``errors``; returns how many of its trials were measured."""
    task = replace(Task.of(study.spec), lengths=study.lengths)
    found = measured(sorted(trials, key=lambda t: t.number))
    for first in FIRST:
        known = found.trials[:first]
        seen = {t.configuration for t in known}
        rest = [i for i in range(first, len(found.trials)) if found.configurations[i] not in seen]
        if len(known) == first and rest:
            foretell(task, hardware, found, known, rest, errors.setdefault(first, Errors()))
    return len(found.trials)


def foretell(
    task: Task, hardware: Hardware | None, found: Measured, known: Sequence[Trial], rest: Sequence[int], errors: Errors
) -> None:
    """Compare all three with the trials at the places ``rest``."""
    model = PhaseTimes(hardware).fitted(task, known)
    prior = replace(PhaseTimes(hardware).fitted(task, ()), world=model.known)
    configurations = [found.configurations[i] for i in rest]
    answers = {"prior": prior.forecast(configurations), "model": model.forecast(configurations)}
    errors.trusted.append(model.trusted)
    for place, i in enumerate(rest):
        whole = float(found.whole[i])
        for arm, answer in answers.items():
            errors.add(arm, "cycle", math.exp(answer.log_seconds[place]), whole)
            for phase in PHASES:
                errors.add(arm, phase, float(answer.phases[phase][place]), float(found.seconds[phase][i]))
        spread = math.hypot(float(answers["model"].spread[place]), model.noise)
        away = abs(math.log(whole) - float(answers["model"].log_seconds[place]))
        errors.inside.append(away <= INSIDE * spread)
        if known:
            near = nearest(found.trials[i], known)
            errors.add("nearest", "cycle", float(found.whole[near]), whole)
            for phase in PHASES:
                errors.add("nearest", phase, float(found.seconds[phase][near]), float(found.seconds[phase][i]))


def nearest(trial: Trial, known: Sequence[Trial]) -> int:
    """Place of the known trial with fewest other knobs; of several the latest."""
    apart = [len(trial.configuration.difference(other.configuration)) for other in known]
    return max(range(len(known)), key=lambda i: (-apart[i], i))


def table(errors: dict[int, Errors]) -> list[str]:
    """One row for each number of trials learnt from."""
    heads = ["cycle: prior", "model", "nearest", *(f"{phase}: {arm}" for phase in PHASES for arm in ARMS)]
    lines = [
        f"| first | foretold | {' | '.join(heads)} | in 90 % interval | prior trusted |",
        f"|{'---|' * (len(heads) + 4)}",
    ]
    for first, one in sorted(errors.items()):
        cells = [one.median(arm, phase) for phase in ("cycle", *PHASES) for arm in ARMS]
        inside, trusted = statistics.fmean(one.inside), statistics.fmean(one.trusted)
        lines.append(f"| {first} | {len(one.inside)} | {' | '.join(cells)} | {inside:.0%} | {trusted:.0%} |")
    return lines


def main() -> None:
    """Run and print."""
    asked = argparse.ArgumentParser(description="How well cycle times are foretold, on recorded studies.")
    asked.add_argument("home", type=Path, nargs="+", metavar="HOME [STUDY]", help="a home, or a study's name in it")
    asked.add_argument("--gpu")
    asked.add_argument("--probe", type=Path)
    words = asked.parse_args()
    hardware = sheet_of(words.gpu) if words.gpu else None
    if words.probe:
        hardware = probed(json.loads(words.probe.read_text()))
    if (words.gpu or words.probe) and hardware is None:
        asked.error("no such device")
    errors: dict[int, Errors] = {}
    homes = [path for path in words.home if path.is_dir()]
    names = {str(path) for path in words.home if not path.is_dir()}
    for home in homes:
        store = open_store(read_settings(home=home).database)
        for study in store.studies():
            if not names or study.spec.name in names:
                count = replay(study, store.trials(study.id), hardware, errors)
                print(f"{study.spec.name}: {count} measured trials")
        store.close()
    print(f"\ndevice: {hardware.name if hardware else 'presumed'}; median |error| of log seconds\n")
    print("\n".join(table(errors)))


if __name__ == "__main__":
    main()
