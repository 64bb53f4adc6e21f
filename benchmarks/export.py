"""Does an exported command give what a trial states? Three configurations of a finished study, interleaved.

``python benchmarks/export.py HOME STUDY [ROUNDS] [UPDATES]`` runs, in each round and for each configuration in
turn, a trial as the study confirms one and then the exported command, in fresh processes, and prints observed ÷
expected of each pair and of each configuration over all rounds. The exported side is measured by the arrival of
TRL's own lines alone.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune import wiring
from autotune.domain import Configuration, CycleRecord, Study, Trial, TrialKind, TrialState
from autotune.machine.clock import SystemClock
from autotune.ports import Assignment, Store
from autotune.recommendation import export
from autotune.recommendation.reading import read_study
from autotune.settings import Settings, read_settings
from autotune.statistics import evidence
from autotune.store import open_store
from autotune.study.confirmation import protocol_for
from autotune.verify.compare_run import ObservedRun, RunVerdict, judge, shape_of, stated_by, together
from autotune.verify.exported_run import Rehearsal
from trainer.child.contract import CurrentPhase, Record

TRIAL_DEADLINE_S = 3600.0


class GoOn:
    """Nobody asks for a stop."""

    level = 0


class Cycles:
    """Keeps what a trial measures."""

    enough: bool | None = None

    def __init__(self) -> None:
        self.cycles: list[CycleRecord] = []

    def record(self, record: Record) -> None:
        """One record of the trial."""
        if isinstance(record, CycleRecord):
            self.cycles.append(record)

    def phase(self, phase: CurrentPhase) -> None:
        """Not of interest."""

    def tick(self) -> None:
        """Not of interest."""


def three(study: Study, trials: Sequence[Trial]) -> list[Configuration]:
    """The baseline, the leader and the slowest that holds; others where these are the same."""
    held = evidence.feasible(trials)
    ranked = sorted(held, key=lambda c: evidence.speed(held[c]))
    leaders = [leader.configuration for leader in evidence.leaders(trials, study.spec.baseline, study.spec.framework)]
    wanted = [study.spec.baseline, *leaders, ranked[0], *reversed(ranked)]
    return [c for c in dict.fromkeys(wanted) if c in held][:3]


def trial_now(study: Study, configuration: Configuration, settings: Settings, directory: Path) -> Trial:
    """A trial of the configuration as a confirmation would run it; ends the program if it fails."""
    trial = attempt(study, configuration, settings, directory, TRIAL_DEADLINE_S)
    if trial.outcome is not None and not trial.outcome.ok:
        sys.exit(f"the trial failed: {trial.outcome.sentence()}")
    return trial


def attempt(
    study: Study, configuration: Configuration, settings: Settings, directory: Path, deadline_s: float
) -> Trial:
    """The same, stopped after ``deadline_s`` seconds; FAIL with its outcome if it does not end well."""
    trial = Trial(
        study.id, 0, TrialKind.CONFIRM, configuration,
        replace(protocol_for(study), maximum=0, double=0),
        study.spec.workload.rows_per_update, TrialState.RUNNING, attempt=1,
    )  # fmt: skip
    watcher = Cycles()
    runner = wiring.runner_for(study.spec, settings, SystemClock())
    report = runner.run(Assignment(study, trial, directory, deadline_s), watcher, GoOn())
    state = TrialState.COMPLETE if report.outcome.ok else TrialState.FAIL
    return trial.with_(cycles=tuple(watcher.cycles), state=state, outcome=report.outcome, seconds=report.seconds)


def pair(
    study: Study, trials: Sequence[Trial], configuration: Configuration, settings: Settings, store: Store, updates: int
) -> tuple[Trial, ObservedRun]:
    """A trial, and the exported command right after it."""
    with tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder:
        trial = trial_now(study, configuration, settings, Path(folder) / "attempt")
    number = evidence.feasible(trials)[configuration][0].number
    made = export.build(read_study(store, study), export.ExportChoice(trial=number), store)
    rehearsal = Rehearsal(study, (trial,), (trial,), made, settings, updates, GoOn(), lambda *_: None, SystemClock())
    rehearsal.write()
    return trial, rehearsal.run(1)


def verdict(study: Study, configuration: Configuration, ran: Sequence[tuple[Trial, ObservedRun]]) -> RunVerdict:
    """Of all rounds of a configuration."""
    shape = shape_of(study, configuration)
    cycles = tuple(c for trial, _ in ran for c in trial.cycles)
    whole = ran[0][0].with_(cycles=cycles)
    stated = stated_by((whole,), whole.tokens_per_hour or 0.0, shape)
    if stated is None:
        sys.exit("a trial measured no speed cycle")
    return judge(together([observed for _, observed in ran]), stated, shape)


def main(home: Path, name: str, rounds: int, updates: int) -> None:
    """Run and print."""
    settings = read_settings(home=home)
    store = open_store(settings.database)
    study = store.study(name)
    trials = store.trials(study.id)
    chosen = three(study, trials)
    ran: dict[Configuration, list[tuple[Trial, ObservedRun]]] = {c: [] for c in chosen}
    for number in range(rounds):
        for configuration in chosen if number % 2 == 0 else reversed(chosen):
            ran[configuration].append(pair(study, trials, configuration, settings, store, updates))
            one = verdict(study, configuration, ran[configuration][-1:])
            changed = configuration.difference(study.spec.baseline)
            print(f"round {number + 1}: observed / expected {one.ratio:.3f}  {changed or 'baseline'}", flush=True)
    store.close()
    print("\nstated tokens/hour | expected at the lengths observed | observed | observed / expected")
    ratios = []
    for configuration in chosen:
        found = verdict(study, configuration, ran[configuration])
        ratios.append(found.ratio)
        print(f"{found.stated:,.0f} | {found.expected:,.0f} | {found.observed:,.0f} | {found.ratio:.3f}")
    print(f"\nlargest difference {max(abs(r - 1) for r in ratios):.1%}, mean ratio {statistics.fmean(ratios):.3f}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:5]]
    main(Path(sys.argv[1]), sys.argv[2], *(numbers + [2, 8][len(numbers) :]))
