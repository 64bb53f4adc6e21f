"""``python -m benchmarks.gpu.rounds HOME STUDY SECONDS OUT.jsonl``: a study's answer beside what people start from.

A round runs TRL's defaults, competent ones and the study's answer, each in a fresh process, in turned-round order in
every second one. A round begins only if it is predicted to end in time. Every run is written to OUT.jsonl as it ends,
a line of JSON with the label, the round and the trial as ``benchmarks.gpu.journal`` writes one; the ratios of the whole
rounds are printed after each.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune import wiring
from autotune.domain import Configuration, Study, Trial, TrialKind, TrialState
from autotune.machine.clock import SystemClock
from autotune.ports import Assignment
from autotune.recommendation.recommend import recommend
from autotune.settings import Settings, read_settings
from autotune.statistics import evidence
from autotune.store import open_store
from autotune.study.confirmation import protocol_for
from benchmarks.gpu.journal import row_of
from benchmarks.gpu.run import Asked, Heard
from benchmarks.ratios import interval
from search_spaces.knobs import KNOBS
from search_spaces.space import SearchSpace

GUESS_S = 60.0
"""Of a run nobody has timed."""
Run = Callable[[Configuration, float], Trial]
"""A configuration, run for so many seconds at most."""


ENGINE = "rollout_engine"


def contenders(study: Study, trials: Sequence[Trial]) -> dict[str, Configuration]:
    """Returns the configurations to compare by label, the defaults first."""
    spec = study.spec
    found = {"defaults": spec.baseline}
    competent = _competent(study)
    if competent is not None:
        found["competent"] = competent
    for leader in evidence.leaders(trials, spec.baseline, spec.framework):
        if leader.configuration not in found.values():
            found["same learning" if leader.row is evidence.Row.SAME_LEARNING else "permitted"] = leader.configuration
    return found


def _competent(study: Study) -> Configuration | None:
    """Returns the baseline with colocated vLLM, and with few other settings of the engine."""
    space, where = SearchSpace.from_json(study.spec.space), (study.spec.baseline, study.spec.resources)
    whole, own = space.complete(*where), {name for name, knob in KNOBS.items() if ENGINE in knob.needs} | {ENGINE}
    found = [c for c in space.candidates(*where, same_learning=True) if set(c.difference(whole)) <= own]
    other = (c for c in found if c.get(ENGINE) == "vllm" != whole.get(ENGINE))
    return min(other, key=lambda c: len(c.difference(whole)), default=None)


def unproven(study: Study, trials: Sequence[Trial]) -> frozenset[Configuration]:
    """Returns the leaders that the study does not recommend."""
    answer = recommend(study.spec, trials, "")
    recommended = {row.configuration for row in answer.rows} if answer else set()
    leaders = evidence.leaders(trials, study.spec.baseline, study.spec.framework)
    return frozenset(leader.configuration for leader in leaders) - recommended


def attempt(study: Study, configuration: Configuration, settings: Settings, folder: Path, most_s: float) -> Trial:
    """Runs a trial as a confirmation does, in a fresh process, and stops it after ``most_s`` seconds."""
    trial = Trial(
        study.id, 0, TrialKind.CONFIRM, configuration,
        replace(protocol_for(study), maximum=0, double=0),
        study.spec.workload.rows_per_update, TrialState.RUNNING, attempt=1,
    )  # fmt: skip
    heard = Heard()
    runner = wiring.runner_for(study.spec, settings, SystemClock())
    report = runner.run(Assignment(study, trial, folder, most_s), heard, Asked())
    state = TrialState.COMPLETE if report.outcome.ok else TrialState.FAIL
    return trial.with_(cycles=tuple(heard.cycles), state=state, outcome=report.outcome, seconds=report.seconds)


def expected_s(chosen: Mapping[str, Configuration], trials: Sequence[Trial]) -> dict[str, float]:
    """Seconds of a run by label: the longest a trial of the configuration took in the study."""
    return {
        label: max((t.seconds for t in trials if t.configuration == one and t.seconds), default=GUESS_S)
        for label, one in chosen.items()
    }


def run_rounds(
    chosen: Mapping[str, Configuration],
    took: dict[str, float],
    run: Run,
    left: Callable[[], float],
    keep: Callable[[str, int, Trial], None],
) -> dict[str, list[Trial]]:
    """The trials of all whole rounds, by label.

    Args:
        chosen: what is compared; one that fails is left out of all later rounds, and of the answer.
        took: predicted seconds by label; each run corrects its own.
        run: runs one.
        left: seconds until the end.
        keep: told of each run as it ends.
    """
    ran: dict[str, list[Trial]] = {label: [] for label in chosen}
    number = 0
    while len(ran) > 1 and left() >= sum(took[label] for label in ran):
        this: dict[str, Trial] = {}
        for label in list(ran) if number % 2 == 0 else list(reversed(ran)):
            trial = run(chosen[label], max(1.0, left()))
            keep(label, number, trial)
            took[label] = trial.seconds or took[label]
            if trial.state is TrialState.COMPLETE and trial.tokens_per_hour:
                this[label] = trial
            elif left() > 0:
                del ran[label]
        if set(this) < set(ran):
            break  # the end came within the round
        for label, trial in this.items():
            ran[label].append(trial)
        number += 1
    return {label: runs for label, runs in ran.items() if runs}


def ratios(ran: Mapping[str, Sequence[Trial]]) -> list[str]:
    """A line for each pair that is compared."""
    lines = []
    for over in ("defaults", "competent"):
        for label in ran:
            if over in ran and label not in ("defaults", over):
                pairs = zip(ran[label], ran[over], strict=True)
                logs = [math.log((a.tokens_per_hour or 1.0) / (b.tokens_per_hour or 1.0)) for a, b in pairs]
                value, low, high = interval(logs)
                count = len(logs)
                sure = f"95 % interval {low:.2f} to {high:.2f}, {count} rounds" if count > 1 else "1 round, no interval"
                lines.append(f"{label} / {over}: {value:.2f} ({sure})")
    return lines


def main(home: Path, name: str, seconds: float, out: Path) -> None:
    """Run and print."""
    end = time.monotonic() + seconds
    settings = read_settings(home=home)
    store = open_store(settings.database)
    study = store.study(name)
    trials = store.trials(study.id)
    store.close()
    if not study.lengths:
        sys.exit("the study has no recorded lengths: no trial of it was measured")
    chosen, doubtful = contenders(study, trials), unproven(study, trials)
    for label, one in chosen.items():
        knobs = dict(one.difference(study.spec.baseline)) or "the baseline"
        print(f"{label}{' (not proven in the study)' if one in doubtful else ''}: {knobs}", flush=True)

    def run(configuration: Configuration, most_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix="autotune-rounds-") as folder:
            return attempt(study, configuration, settings, Path(folder) / "attempt", most_s)

    def keep(label: str, number: int, trial: Trial) -> None:
        with out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"label": label, "round": number + 1, **row_of(trial, label)}) + "\n")
        said = "" if trial.outcome is None or trial.outcome.ok else f": {trial.outcome.sentence()}"
        speed = trial.tokens_per_hour or 0.0
        print(f"round {number + 1}: {label} {speed:,.0f} tokens/hour, {trial.seconds or 0.0:.0f} s{said}", flush=True)

    ran = run_rounds(chosen, expected_s(chosen, trials), run, lambda: end - time.monotonic(), keep)
    for line in ratios(ran) or ["no whole round fitted"]:
        print(line, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__.split("\n")[0] if __doc__ else "")
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
