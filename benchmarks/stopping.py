"""How often does the stopping rule discard the true best, and what does it save? On synthetic studies.

``python -m benchmarks.stopping [--studies 1000] [--trials 20] [--home HOME]``

Each study is a baseline and search trials, decided one after the other by the functions a real study uses
(``autotune.statistics.early_stopping``). How fast configurations are is drawn from those recorded in
``benchmarks/tables/every-knob-cpu.md`` (their logarithms, each moved by 2 % so that no two are the same), in the harder
cases a third as far apart. Noise of a cycle's logarithm, all parts independent:

* of each process once, and of each cycle: from the stored studies of ``HOME`` where one is given (configurations that
  ran in several processes; trials of two cycles or more), else the constants of ``autotune.statistics.noise``, which
  say what they were taken from;
* drift: from cycle to cycle a step of a random walk with ``DRIFT`` of a cycle's spread;
* outliers the clock guard does not see: one cycle in fifty takes 1.3 times as long;
* a first cycle that takes 1.5 times as long, in one trial of ten (an engine's first batch of a new shape); where the
  next shows it, the trial drops it and makes another (``trainer.child.settling``);
* in one case processes that differ by 13 %, as two pairs in the eager study of ``benchmarks/tables`` from an H100 do,
  and the rule presumes it;
* in one case a machine that gets 10 % slower from the study's first trial to its last.

It prints how often the true best was discarded, with the exact one-sided 95 % binomial (Clopper-Pearson) bound; the
recorded cycles spared against eight in every trial; and what the choice among the trials lost against the true best,
with the rule and with eight cycles: the leader is confirmed beside the baseline either way.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.settings import read_settings
from autotune.statistics import early_stopping, evidence
from autotune.statistics import noise as noises
from autotune.statistics.early_stopping import Verdict
from autotune.statistics.noise import Sample
from autotune.store import open_store
from benchmarks import every_knob_table
from trainer.child.contract import Protocol
from trainer.child.settling import UNSETTLED

JITTER = 0.02
DRIFT = 0.3
GPU_SPREAD = 0.13
"""Of two pairs of processes in the eager study of benchmarks/tables/h100-studies-2026-11-22.md."""
OUTLIERS, OUTLIER = 1 / 50, math.log(1.3)
SLOW_FIRSTS, SLOW_FIRST = 1 / 10, math.log(1.5)
PHASES = ("generate", "update", "logprob")
REPEATS = Protocol().max_repeats


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and where they are from."""

    cycle: float
    process: float
    source: str


@dataclass(frozen=True)
class Case:
    """What a study's truth is drawn from."""

    label: str
    noise: Noise
    speeds: Sequence[float]
    apart: float = 1.0
    fading: float = 0.0
    """By how much the machine is slower at the end, as a logarithm."""
    on_gpu: bool = False
    """What the rule presumes of processes is what it presumes on a GPU."""


@dataclass
class Score:
    """What came of one study."""

    discarded: bool
    cycles: int
    trials: int
    ends: Mapping[str, int]
    loss: float
    """Logarithm of the true best over the one the rule's figures lead to."""
    loss_of_eight: float


def recorded_speeds(table: Path = every_knob_table.TABLE) -> tuple[float, ...]:
    """Log tokens/hour of the configurations of a recorded table, around their mean, without the emulated (FP8)."""
    rows = [row for row in every_knob_table.rows(table) if row["precision"] != "fp8"]
    rates = [int(row["tokens/h"].replace(",", "")) for row in rows if row["tokens/h"] != "-"]
    middle = statistics.fmean(math.log(rate) for rate in rates)
    return tuple(math.log(rate) - middle for rate in rates)


def recorded_noise(home: Path) -> Noise:
    """Pooled over the stored studies of a home; what they do not show is presumed."""
    store = open_store(read_settings(home=home).database)
    studies = [store.trials(study.id) for study in store.studies()]
    store.close()
    logs = lambda trial: noises.sample_of(trial).logs
    within = [logs(t) for trials in studies for t in trials if len(logs(t)) > 1]
    processes = [[statistics.fmean(logs(t)) for t in runs] for trials in studies for runs in evidence.repeats(trials)]
    cycle, process = (math.sqrt(noises.pooled(groups).variance) for groups in (within, processes))
    words = f"{len(within)} trials, {len(processes)} configurations that ran more than once"
    return Noise(cycle or noises.CYCLE_SPREAD, process or noises.PROCESS_SPREAD, words)


def made(number: int, speed: float, noise: Noise, draw: random.Random, cycles: int) -> Sample:
    """All cycles a trial of that true log speed would have."""
    process, walk = draw.gauss(0.0, noise.process), 0.0
    shares = [math.exp(draw.gauss(0.0, 0.5)) for _ in PHASES]
    slow_first = draw.random() < SLOW_FIRSTS
    logs, phases = [], []
    for index in range(cycles):
        walk += draw.gauss(0.0, DRIFT * noise.cycle)
        log = speed + process + walk + draw.gauss(0.0, noise.cycle)
        log -= OUTLIER if draw.random() < OUTLIERS else 0.0
        log -= SLOW_FIRST if slow_first and index == 0 else 0.0
        logs.append(log)
        phases.append({p: math.exp(-log) * share / sum(shares) for p, share in zip(PHASES, shares, strict=True)})
    return Sample(number, tuple(logs), tuple(phases))


def study(case: Case, trials: int, seed: int) -> Score:
    """One study: a baseline of three cycles, then ``trials`` - 1 search trials."""
    draw = random.Random(f"stopping/{seed}")  # noqa: S311
    speeds = [12.0 + case.apart * draw.choice(case.speeds) + draw.gauss(0.0, JITTER) for _ in range(trials)]
    fading = [case.fading * n / (trials - 1) for n in range(trials)]
    most = early_stopping.LOOKS[-1]
    drawn = [made(n, speeds[n] - fading[n], case.noise, draw, most + REPEATS) for n in range(trials)]
    warm = [settled(whole) for whole in drawn]
    full = [cut(whole, most) for whole in warm]
    seen = [cut(full[0], early_stopping.LOOKS[0])]
    held, spent, discarded = list(seen), 0, set()
    ends: dict[str, int] = {}
    for whole in full[1:]:
        known = early_stopping.weigh(seen, [[s] for s in held], on_gpu=case.on_gpu)
        sample, verdict = run(whole, known)
        seen.append(sample)
        spent += len(sample.logs) + len(drawn[whole.trial].logs) - len(warm[whole.trial].logs)
        ends[f"{verdict} after {len(sample.logs)}"] = ends.get(f"{verdict} after {len(sample.logs)}", 0) + 1
        if verdict is Verdict.LOSES:
            discarded.add(sample.trial)
        else:
            held.append(sample)
    best = max(range(trials), key=lambda n: speeds[n])
    chosen, of_eight = (max(s, key=lambda one: one.mean).trial for s in (held, full))
    losses = [speeds[best] - speeds[n] for n in (chosen, of_eight)]
    return Score(best in discarded, spent, trials - 1, ends, losses[0], losses[1])


def cut(sample: Sample, cycles: int) -> Sample:
    """Its first cycles."""
    return replace(sample, logs=sample.logs[:cycles], phases=sample.phases[:cycles])


def settled(sample: Sample) -> Sample:
    """Without the first cycles that still were a warm-up, as the next one shows."""
    first = 0
    while first < REPEATS and sample.logs[first + 1] - sample.logs[first] > math.log1p(UNSETTLED):
        first += 1
    return replace(sample, logs=sample.logs[first:], phases=sample.phases[first:])


def run(whole: Sample, known: early_stopping.Known) -> tuple[Sample, Verdict]:
    """Cycle by cycle until the rule ends it, or all are made."""
    for cycles in range(1, len(whole.logs) + 1):
        sample = cut(whole, cycles)
        verdict = early_stopping.decide(sample, known).verdict
        if verdict is not Verdict.GO_ON:
            return sample, verdict
    return whole, Verdict.ENOUGH


def at_most(hits: int, of: int, level: float = 0.05) -> float:
    """The exact upper bound of a share, one-sided (Clopper and Pearson, Biometrika 26, 1934)."""
    low, high = hits / of, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = sum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(hits + 1))
        low, high = (middle, high) if below > level else (low, middle)
    return high


def show(label: str, scores: Sequence[Score]) -> None:
    """One row of the table."""
    hits, count = sum(s.discarded for s in scores), len(scores)
    cycles, trials = sum(s.cycles for s in scores), sum(s.trials for s in scores)
    ends: dict[str, int] = {}
    for score in scores:
        for name, number in score.ends.items():
            ends[name] = ends.get(name, 0) + number
    saved = 1.0 - cycles / (early_stopping.LOOKS[-1] * trials)
    losses = [math.expm1(statistics.fmean(values)) for values in zip(*((s.loss, s.loss_of_eight) for s in scores))]  # noqa: B905
    loses = sum(n for name, n in ends.items() if name.startswith("loses"))
    print(
        f"| {label} | {hits / count:.1%} (at most {at_most(hits, count):.1%}) | {saved:.0%} | {cycles / trials:.2f} "
        f"| {loses / trials:.0%} | {losses[0]:.1%} | {losses[1]:.1%} |"
    )
    print("  ", ", ".join(f"{name}: {number / trials:.1%}" for name, number in sorted(ends.items())))


def main() -> None:
    """Run and print."""
    asked = argparse.ArgumentParser(description="The stopping rule on synthetic studies.")
    asked.add_argument("--studies", type=int, default=1000)
    asked.add_argument("--trials", type=int, default=20)
    asked.add_argument("--home", type=Path)
    words = asked.parse_args()
    presumed = Noise(noises.CYCLE_SPREAD, noises.PROCESS_SPREAD, "the constants of autotune.statistics.noise")
    noise = recorded_noise(words.home) if words.home else presumed
    speeds = recorded_speeds()
    print(
        f"{words.studies} studies of {words.trials} trials; sd of a cycle {noise.cycle:.1%}, of a process "
        f"{noise.process:.1%} ({noise.source}); {len(speeds)} recorded configurations, sd of log tokens/hour "
        f"{statistics.stdev(speeds):.2f}\n"
    )
    print("| case | best discarded | cycles saved | cycles a trial | discarded trials | chosen below best | with 8 |")
    print("|---|---|---|---|---|---|---|")
    double = replace(noise, cycle=2 * noise.cycle, process=2 * noise.process)
    h100 = replace(noise, process=GPU_SPREAD)
    cases = (
        Case("as recorded", noise, speeds),
        Case("a third as far apart", noise, speeds, 1 / 3),
        Case("a third, a machine that gets 10 % slower", noise, speeds, 1 / 3, -math.log(0.9)),
        Case("a third, twice the noise", double, speeds, 1 / 3),
        Case("a third, processes as on an H100", h100, speeds, 1 / 3, on_gpu=True),
    )
    for case in cases:
        show(case.label, [study(case, words.trials, seed) for seed in range(words.studies)])


if __name__ == "__main__":
    main()
