"""``autotune verify --steps``: one long trial outside the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from autotune.cli import console, exit_codes
from autotune.cli.options import find_study, reading
from autotune.cli.screens.observer import QuietObserver
from autotune.cli.stopping import Interrupt, interruptible
from autotune.documents.study import plain
from autotune.domain import Budget, Event, RecommendationRow, Study, Trial, TrialDraft, TrialState
from autotune.errors import MachineError, UsageError
from autotune.insights.growth import Growth, growths
from autotune.ports import Observer, Store
from autotune.recommendation import export
from autotune.recommendation.reading import read_study
from autotune.statistics.lengths import ONCE
from autotune.study.loop import StudyLoop
from autotune.verify import long_run
from autotune.verify.compare_run import shape_of
from autotune.verify.length_model import LengthPrediction, predict_from
from autotune.verify.sentences import growth_lines, long_lines, long_sentence
from autotune.wording.numbers import format_duration, rate, signed_percent
from autotune.wording.text import clean


@dataclass(frozen=True)
class Bench:
    """A study whose configuration can be run here and now."""

    study: Study
    store: Store
    stop: Interrupt
    loop: Callable[[Observer], StudyLoop]

    @property
    def trials(self) -> tuple[Trial, ...]:
        return self.store.trials(self.study.id)

    def run(self, draft: TrialDraft, observer: Observer) -> Trial:
        """Runs one trial, its time on no budget; Ctrl-C ends it and the command. Raises ``StudyBusyError`` if a tuner
        runs the study."""
        trial = self.loop(observer).retry(draft, counted=False)
        if self.stop.signal is not None:
            kept = "" if trial.state is not TrialState.WAITING else "; the same command goes on with it"
            console.say(f"stopped; nothing is left running, and what was measured is kept{kept}")
            raise typer.Exit(exit_codes.SIGNAL + self.stop.signal)
        return trial


def run(name: str | None, choice: export.ExportChoice, steps: str, as_json: bool, home: Path | None) -> int:
    """Runs the chosen configuration for ``steps`` (``10x``, or a number of updates), prints the verdict, and returns
    the exit code.

    Raises ``UsageError`` where there is nothing to compare with, ``MachineError`` on another machine than the study's,
    or where the configuration does not train here.
    """
    from autotune.wiring import check_machine, loop, present_fingerprint

    with interruptible() as stop, reading(home, stop) as (settings, store):
        study = find_study(store, name)
        row = export.chosen(read_study(store, study), choice)
        if not study.lengths:
            raise UsageError("the study has recorded no completion lengths yet")
        fingerprint = present_fingerprint(study.spec, settings, console.say)
        check_machine(store, study, fingerprint)
        if stop.signal is not None:
            raise typer.Exit(exit_codes.SIGNAL + stop.signal)

        def observed(observer: Observer) -> StudyLoop:
            return loop(study, Budget(), store, settings, observer, stop, fingerprint)

        bench = Bench(study, store, stop, observed)
        return _steps(bench, row, steps, as_json)


def _steps(bench: Bench, row: RecommendationRow, steps: str, as_json: bool) -> int:
    shape = shape_of(bench.study, row.configuration)
    prediction = predict_from(
        export.supporting(row, bench.trials),
        row.tokens_per_hour,
        shape,
        long_run.alike(bench.trials, row.configuration),
    )
    if prediction is None:
        raise UsageError("the trials of this configuration have no speed cycles to compare with")
    cycles = long_run.cycles_asked(steps, prediction.cycles[ONCE], shape.updates)
    console.say(
        f"{clean(bench.study.spec.name)}: {cycles} cycles ({cycles * shape.updates} updates) at natural lengths in a "
        f"fresh process; the stated {rate(row.tokens_per_hour)} tokens/hour rest on {prediction.rests_on}"
    )
    draft = long_run.draft(bench.study, row.configuration, cycles)
    trial = bench.run(draft, LongProgress(prediction, cycles, console.say))
    if not trial.feasible:
        said = "" if trial.outcome is None else trial.outcome.sentence()
        raise MachineError(f"trial {trial.number}, the long run, did not end well: {clean(said)}")
    return _judge(bench, trial, prediction, as_json)


def _judge(bench: Bench, trial: Trial, prediction: LengthPrediction, as_json: bool) -> int:
    verdict = long_run.compare(prediction, long_run.natural(trial))
    if verdict is None:
        raise MachineError(f"trial {trial.number}, the long run, measured too few cycles")
    spec = bench.study.spec
    memory = growths(long_run.natural(trial), spec.memory_limit, spec.resources.device_memory)
    document = long_document(bench.study, trial, verdict, memory)
    event = Event("verified", long_sentence(verdict), document, trial=trial.number, at=time.time())
    bench.store.add_event(bench.study.id, event)
    if as_json:
        console.document(document)
    else:
        for text in [*long_lines(verdict), *growth_lines(memory, verdict.updates / verdict.cycles)]:
            console.line(text)
    return 0 if verdict.agrees else exit_codes.NOTHING_FEASIBLE


EVERY_S = 10.0
"""Between two lines of a long run."""


@dataclass(eq=False)
class LongProgress(QuietObserver):
    """An ``Observer`` that talks of cycles."""

    prediction: LengthPrediction
    cycles: int
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _told: float = -EVERY_S
    _count: int = 0

    def event(self, event: Event) -> None:
        """Only what keeps the run from being a plain one."""
        if event.kind in ("trial_repeated", "quarantined", "gpu_quarantined", "bad_lines"):
            self.say(clean(event.message))

    def trial(self, trial: Trial) -> None:
        """A line each ``EVERY_S``, and one at the last cycle."""
        cycles = long_run.natural(trial)
        if not cycles or len(cycles) == self._count:
            return
        self._count = len(cycles)
        if self.now() - self._told < EVERY_S and self._count < self.cycles:
            return
        self._told = self.now()
        last, spent = cycles[-1], sum(c.seconds for c in cycles)
        expected = sum(sum(self.prediction.seconds(c).values()) for c in cycles)
        left = (self.cycles - self._count) * spent / self._count
        mean = last.completion_tokens / max(1, last.rows)
        self.say(
            f"cycle {self._count} of {self.cycles}: {last.seconds:.1f} s, completions of {mean:.1f} tokens; so far "
            f"{signed_percent(expected / spent - 1.0)} against the prediction; {format_duration(left)} left"
        )


def long_document(
    study: Study, trial: Trial, verdict: long_run.LongVerdict, memory: Sequence[Growth] = ()
) -> dict[str, Any]:
    """A verdict as ``--json`` gives it."""
    return {
        "study": plain(study.spec.name),
        "trial": trial.number,
        "configuration": plain(trial.configuration),
        "stated_tokens_per_hour": plain(verdict.stated),
        "predicted_tokens_per_hour": plain(verdict.predicted),
        "measured_tokens_per_hour": plain(verdict.measured),
        "raw_tokens_per_hour": plain(verdict.raw),
        "ratio": plain(verdict.ratio),
        "ratio_low": plain(verdict.low),
        "ratio_high": plain(verdict.high),
        "within_5_percent": verdict.agrees,
        "first_third_ratio": plain(verdict.early),
        "last_third_ratio": plain(verdict.late),
        "cycles": verdict.cycles,
        "compared_cycles": verdict.compared,
        "disturbed_cycles": verdict.disturbed,
        "updates": verdict.updates,
        "stated_mean_completion_tokens": plain(verdict.stated_length),
        "observed_mean_completion_tokens": plain(verdict.observed_length),
        "stated_longest_completion_tokens": plain(verdict.stated_longest),
        "observed_longest_completion_tokens": plain(verdict.observed_longest),
        "phases": [
            {"phase": plain(g.phase), "predicted_seconds": plain(g.predicted), "measured_seconds": plain(g.measured)}
            for g in verdict.phases
        ],
        "reason": plain(verdict.reason),
        "rests_on": plain(verdict.rests_on),
        "memory": [
            {
                "pool": plain(one.pool),
                "first_third_peak_bytes": one.early,
                "last_third_peak_bytes": one.late,
                "bytes_per_cycle": plain(one.slope),
                "bytes_per_cycle_low": plain(one.low),
                "bytes_per_cycle_high": plain(one.high),
                "rises": one.rises,
                "limit_bytes": one.limit,
                "updates_left": None
                if one.cycles_left is None
                else plain(one.cycles_left * verdict.updates / verdict.cycles),
            }
            for one in memory
        ],
    }
