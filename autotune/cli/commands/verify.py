"""``autotune verify``: runs the exported command, and compares its tokens/hour with the stated ones."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.export import NativeOption, RowOption, TrialOption, choice_of
from autotune.cli.options import HomeOption, JsonOption, StudyArgument, find_study, reading
from autotune.cli.stopping import Interrupt, interruptible
from autotune.documents.study import plain
from autotune.domain import Event, Objective, RecommendationRow, Study
from autotune.errors import MachineError, UsageError
from autotune.machine.clock import SystemClock
from autotune.recommendation.reading import StudyReading, read_study
from autotune.wording.numbers import rate, signed_percent
from autotune.wording.text import clean

if TYPE_CHECKING:
    from autotune.ports import Store
    from autotune.recommendation.export import ExportChoice, Exported
    from autotune.settings import Settings
    from autotune.verify.compare_run import LoggedUpdate, RunVerdict
    from autotune.verify.exported_run import Heard
    from autotune.verify.in_turns import Step, TurnsVerdict

RoundsOption = Annotated[
    int | None,
    typer.Option(min=1, max=100, help="Runs, each in a new process. Default: 1, or 3 with --against-baseline."),
]
UpdatesOption = Annotated[
    int | None,
    typer.Option(min=2, max=10_000, help="Measured updates of each run. Default: 8, or 10 with --against-baseline."),
]
BaselineOption = Annotated[
    bool, typer.Option("--against-baseline", help="Alternate runs of baseline and winner, and check the gain.")
]


def verify(
    study: StudyArgument = None,
    row: RowOption = 1,
    trial: TrialOption = None,
    native_only: NativeOption = False,
    against_baseline: BaselineOption = False,
    rounds: RoundsOption = None,
    updates: UpdatesOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Runs the exported command, and checks its tokens/hour.

    Times updates by the lines that the framework prints, corrected for the observed completion lengths. Ignores
    updates in which other programs used more than 5 % of the CPU. Exit code 0: within 5 % of the stated figure;
    3: further off; 5: undecided, because runs of one configuration may differ by 5 % (--rounds 3 helps), or other
    programs disturbed most updates.

    --against-baseline checks the stated gain: it exports the baseline too, and runs both exports alternately, without
    the tuner's measuring code. Runs that were mostly disturbed are repeated. Exit code 0: the measured ratio of
    tokens/hour is in the stated interval; 3: outside; 5: undecided, because the machine was busy or no gain is stated.

    --updates 500 checks a long run, in which the policy itself ends its completions.

    \b
    Examples:
      autotune verify
      autotune verify my-study --rounds 3 --updates 20
      autotune verify --against-baseline
    """
    choice = choice_of(row, trial, native_only)
    with reading(home) as (settings, store):
        read = read_study(store, find_study(store, study))
        if against_baseline:
            code = _against_baseline(read, choice, store, settings, rounds or 3, updates or 10, as_json)
        else:
            code = _run_exported(read, choice, store, settings, rounds or 1, updates or 8, as_json)
    raise typer.Exit(code)


def _run_exported(
    read: StudyReading, choice: ExportChoice, store: Store, settings: Settings, rounds: int, updates: int, as_json: bool
) -> int:
    """Runs the export under the study's lock, stores and shows the verdict, and returns the exit code."""
    from autotune.recommendation import export
    from autotune.verify import exported_run

    found, made = read.study, export.build(read, choice, store)
    supporting = export.supporting(made.row, read.trials)
    with _stoppable(store, found) as stop:
        console.say(f"running the exported command of {clean(found.spec.name)}: {rounds} x {updates} updates")
        rehearsal = exported_run.Rehearsal(
            found, supporting, read.trials, made, settings, updates, stop, _progress(), SystemClock()
        )
        verdict = exported_run.verify(rehearsal, rounds)
        document = _verdict_document(found, made, verdict)
        store.add_event(found.id, Event("verified", _sentence(verdict), document, at=time.time()))
    console.answer(document, _verdict_lines(verdict), as_json=as_json)
    differs = MachineError.exit_code if verdict.undecided else exit_codes.NOTHING_FEASIBLE
    return 0 if verdict.agrees else differs


@contextmanager
def _stoppable(store: Store, study: Study) -> Iterator[Interrupt]:
    """Holds the study's lock; Ctrl-C ends the exported command, then this one."""
    from autotune.verify.exported_run import InterruptedVerification

    with store.lock(study.id), interruptible() as stop:
        try:
            yield stop
        except InterruptedVerification:
            console.say("stopped; nothing is left running")
            raise typer.Exit(exit_codes.SIGNAL + (stop.signal or signal.SIGINT)) from None


def _against_baseline(
    read: StudyReading, choice: ExportChoice, store: Store, settings: Settings, rounds: int, updates: int, as_json: bool
) -> int:
    """Runs both exports alternately, stores and shows the verdict, and returns the exit code."""
    from autotune.recommendation import export
    from autotune.verify.exported_run import Rehearsal
    from autotune.verify.in_turns import ANSWER, BASELINE, WARMING, compare, take_turns, turns_lines

    found, answer = read.study, export.build(read, choice, store)
    if answer.row.configuration == found.spec.baseline:
        raise UsageError("the answer is the baseline itself; --trial N compares another configuration with it")
    made = {BASELINE: export.build(read, export.ExportChoice(trial=0), store), ANSWER: answer}
    with _stoppable(store, found) as stop:
        sides = {
            run: Rehearsal(
                found, export.supporting(one.row, read.trials), read.trials, one, settings, updates, stop,
                _progress(WARMING), SystemClock(), place=f"verify/{run}",
            )
            for run, one in made.items()
        }  # fmt: skip
        for side in sides.values():
            side.write()
        steps = take_turns(sides, rounds, console.say)
        verdict = compare(steps)
        lines = turns_lines(steps, verdict, answer.row.gain_in(Objective.PER_HOUR))
        document = _turns_document(found, answer.row, steps, verdict)
        sentence = f"in turns with the baseline: {lines[-1]}"
        store.add_event(found.id, Event("verified", sentence, document, at=time.time()))
    console.answer(document, lines, as_json=as_json)
    return {True: 0, False: exit_codes.NOTHING_FEASIBLE, None: MachineError.exit_code}[document["interval_holds"]]


def _turns_document(
    study: Study, row: RecommendationRow, steps: Sequence[Step], verdict: TurnsVerdict
) -> dict[str, Any]:
    from autotune.documents.recommendation import gain_json
    from autotune.verify.in_turns import interval_holds

    gain = row.gain_in(Objective.PER_HOUR)
    return {
        "study": plain(study.spec.name),
        "configuration": plain(row.configuration),
        "confirmed": row.confirmed,
        "stated_gain": None if gain is None else gain_json(gain),
        "tokens_per_hour_ratio": plain(verdict.by_tokens),
        "step_speed_ratio": plain(verdict.by_seconds),
        "round_step_speed_ratios": plain(verdict.rounds),
        "disturbed": verdict.disturbed,
        "interval_holds": interval_holds(verdict, gain),
        "steps": [{**vars(step), "counts": step.clean} for step in steps],
    }


def _progress(warming: int = 1) -> Heard:
    before: list[float] = []

    def hear(number: int, update: int, step: LoggedUpdate) -> None:
        took = f"{step.at - before[-1]:.1f} s" if update > warming else "not counted"
        length = "" if step.mean_length is None else f", completions of {step.mean_length:.1f} tokens"
        console.say(f"run {number}, update {update}: {took}{length}")
        before.append(step.at)

    return hear


def _verdict_document(study: Study, exported: Exported, verdict: RunVerdict) -> dict[str, Any]:
    low, high = verdict.interval
    lengths: dict[str, float | None] = {}
    for side, figure in (("observed", verdict.observed), ("stated", verdict.stated)):
        lengths[f"{side}_tokens_per_hour"] = figure.tokens_per_hour
        lengths[f"{side}_mean_completion_tokens"] = figure.mean_length
        lengths[f"{side}_longest_completion_tokens"] = figure.longest
        lengths[f"{side}_mean_prompt_tokens"] = figure.prompt
    document = {
        "study": study.spec.name,
        "configuration": exported.row.configuration,
        "observed_tokens_per_hour_low": low,
        "observed_tokens_per_hour_high": high,
        "expected_tokens_per_hour": verdict.expected,
        **lengths,
        "within_5_percent": verdict.agrees,
        "disturbed_cycles": verdict.disturbed,
        "cycles": len(verdict.observed.cycles),
        **{name: getattr(verdict, name) for name in ("ratio", "ratio_low", "ratio_high", "undecided", "updates")},
    }
    return {name: plain(value) for name, value in document.items()}


def _sentence(verdict: RunVerdict) -> str:
    return (
        f"verified: observed {rate(verdict.observed.tokens_per_hour)} tokens/hour where {rate(verdict.expected)} were "
        f"expected at the lengths observed ({signed_percent(verdict.ratio - 1.0)}, {verdict.answer})"
    )


def _verdict_lines(verdict: RunVerdict) -> Iterator[str]:
    interval = f" ({' to '.join(map(rate, verdict.interval))}, {verdict.updates} updates)"
    for name, side, more in (("observed", verdict.observed, interval), ("stated  ", verdict.stated, "")):
        yield f"{name} {rate(side.tokens_per_hour)} tokens/hour{more}"
        prompts = "" if side.prompt is None else f"; prompts {side.prompt:.1f}"
        yield f"         completions of {side.mean_length:.1f} tokens, the longest {side.longest:.1f}{prompts}"
    yield f"expected {rate(verdict.expected)} tokens/hour at the lengths observed"
    ratio = f"{verdict.ratio:.3f} (95 % interval {verdict.ratio_low:.3f} to {verdict.ratio_high:.3f})"
    yield f"verdict  {verdict.answer}: observed / expected = {ratio}"
