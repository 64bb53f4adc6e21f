"""How much faster is the recommendation than what people start from? Interleaved in one run, in fresh processes.

``python -m benchmarks.defaults HOME STUDY [ROUNDS [KNOB=VALUE,KNOB=VALUE...]]`` takes a finished study whose baseline
is the framework's defaults, and runs in each round, one after the other and in turned-round order in every second one:

* ``defaults``: the study's baseline, nothing set;
* ``competent``: what the study tried as such, else vLLM beside the trainer and all else as in the baseline (left out
  where it cannot run);
* ``same learning`` and ``permitted``: the fastest of each row of the study's answer. Where the study could not prove
  its lead, and so kept the baseline, it says so: this run is what decides then;
* ``asked``: each further argument, a configuration as it differs from ``same learning``.

It prints tokens/hour and seconds by phase of each, and the ratios with two-sided 95 % intervals: Student's t over
the rounds' logarithms, ROUNDS - 1 degrees of freedom.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from autotune.domain import Configuration, Study, Trial
from autotune.domain.measures import phase_seconds
from autotune.insights import phases
from autotune.proposals.openings import COMPETENT, strong_defaults
from autotune.recommendation.recommend import recommend
from autotune.settings import Settings, read_settings
from autotune.statistics import evidence
from autotune.statistics.distributions import t95
from autotune.store import open_store
from benchmarks.export import trial_now
from search_spaces.space import SearchSpace


def contenders(study: Study, trials: Sequence[Trial]) -> dict[str, Configuration]:
    """What is compared, by name; the defaults first."""
    spec = study.spec
    found = {"defaults": spec.baseline}
    known = _competent(study, trials)
    if known is not None:
        found["competent"] = known
    for leader in evidence.leaders(trials, spec.baseline, spec.framework):
        if leader.configuration not in found.values():
            found["same learning" if leader.row is evidence.Row.SAME_LEARNING else "permitted"] = leader.configuration
    return found


def _competent(study: Study, trials: Sequence[Trial]) -> Configuration | None:
    """Of a space too large to be listed, candidates are drawn, and the draw may lack the one the study tried."""
    tried = next((t.configuration for t in trials if t.source == COMPETENT), None)
    if tried is not None:
        return tried
    space = SearchSpace.from_json(study.spec.space)
    same = space.candidates(study.spec.baseline, study.spec.resources, same_learning=True)
    return strong_defaults(same, space.complete(study.spec.baseline, study.spec.resources))


def unproven(study: Study, trials: Sequence[Trial]) -> frozenset[Configuration]:
    """Leaders the study does not recommend."""
    answer = recommend(study.spec, trials, "")
    named = {row.configuration for row in answer.rows} if answer else set()
    leaders = evidence.leaders(trials, study.spec.baseline, study.spec.framework)
    return frozenset(leader.configuration for leader in leaders) - named


def ratio(here: Sequence[Trial], there: Sequence[Trial]) -> tuple[float, float, float]:
    """(ratio, low, high) of the tokens/hour of paired rounds."""
    logs = [math.log((a.tokens_per_hour or 1.0) / (b.tokens_per_hour or 1.0)) for a, b in zip(here, there, strict=True)]
    middle = statistics.fmean(logs)
    error = 0.0
    if len(logs) > 1:
        error = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - error), math.exp(middle + error)


def show(name: str, runs: Sequence[Trial]) -> None:
    """One line: tokens/hour over all rounds, and seconds of a cycle by phase."""
    cycles = [c for t in runs for c in t.speed_cycles()]
    spent = {phase: seconds / len(cycles) for phase, seconds in phase_seconds(cycles).items()}
    speed = statistics.geometric_mean([t.tokens_per_hour or 1.0 for t in runs])
    parts = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in sorted(spent.items(), key=lambda p: -p[1]))
    noisy = sum(c.noisy for c in cycles)
    print(f"{name:14} {speed:>10,.0f} tokens/hour over {len(cycles)} cycles ({noisy} disturbed): {parts}")


def changed(configuration: Configuration, text: str, study: Study) -> Configuration:
    """``configuration`` with the knobs of ``text``, which is ``KNOB=VALUE,KNOB=VALUE``."""
    values = {knob: yaml.safe_load(value) for knob, value in (word.split("=", 1) for word in text.split(","))}
    space = SearchSpace.from_json(study.spec.space)
    return space.complete(configuration.with_(**values), study.spec.resources)


def main(home: Path, name: str, rounds: int, asked: Sequence[str] = ()) -> None:
    """Run and print."""
    settings = read_settings(home=home)
    store = open_store(settings.database)
    study = store.study(name)
    trials = store.trials(study.id)
    store.close()
    chosen, doubtful = contenders(study, trials), unproven(study, trials)
    fastest = chosen.get("same learning", study.spec.baseline)
    chosen.update({f"asked {text}": changed(fastest, text, study) for text in asked})
    for label, configuration in chosen.items():
        knobs = dict(configuration.difference(study.spec.baseline)) or "the baseline"
        print(f"{label}{' (not proven in the study)' if configuration in doubtful else ''}: {knobs}", flush=True)
    ran: Mapping[str, list[Trial]] = {label: [] for label in chosen}
    for number in range(rounds):
        for label in list(chosen) if number % 2 == 0 else list(reversed(chosen)):
            ran[label].append(once(study, chosen[label], settings))
            print(f"round {number + 1}: {label} {ran[label][-1].tokens_per_hour:,.0f} tokens/hour", flush=True)
    print()
    for label, runs in ran.items():
        show(label, runs)
    for label in list(chosen)[1:]:
        for over in ("defaults", "competent"):
            if over in ran and over != label:
                value, low, high = ratio(ran[label], ran[over])
                print(f"{label} / {over}: {value:.2f} (95 % interval {low:.2f} to {high:.2f}, {rounds} rounds)")
    for label, runs in ran.items():
        print(f"{label}: {phases.limit_sentence(runs[-1], study.spec.memory_limit, None)}")


def once(study: Study, configuration: Configuration, settings: Settings) -> Trial:
    """A fresh process, measured as a confirmation is."""
    with tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder:
        return trial_now(study, configuration, settings, Path(folder) / "attempt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3, sys.argv[4:])
