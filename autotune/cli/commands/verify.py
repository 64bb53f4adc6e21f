"""``autotune verify``: runs the exported command, and compares its tokens/hour with the stated figure."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.export import NativeOption, RowOption, TrialOption, choice_of
from autotune.cli.options import HomeOption, JsonOption, StudyArgument, find_study, reading
from autotune.cli.stopping import interruptible
from autotune.documents.study import plain
from autotune.domain import Event, Study
from autotune.errors import MachineError
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

StepsOption = Annotated[
    str | None,
    typer.Option(help="One long run: 10x the cycles the figure rests on, or a number of updates.", metavar="10x|N"),
]
RepeatOption = Annotated[
    int | None,
    typer.Option(min=2, max=100, help="N runs in fresh processes, and their spread.", metavar="N"),
]
OverOption = Annotated[str | None, typer.Option(help="Spread the runs of --repeat over this time: 8h.", metavar="TIME")]


def verify(
    study: StudyArgument = None,
    row: RowOption = 1,
    trial: TrialOption = None,
    native_only: NativeOption = False,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Runs in fresh processes.")] = 1,
    updates: Annotated[
        int, typer.Option(min=2, max=10_000, help="Updates that count in each run; the first never does.")
    ] = 8,
    steps: StepsOption = None,
    repeat: RepeatOption = None,
    over: OverOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Run the exported command, and compare its tokens/hour with the stated figure.

    The time is taken from outside, between the lines the framework itself prints; the ratio is corrected for
    the lengths observed. Exit code 0: within 5 %; 3: not; 5: not decided, because processes of one configuration
    may differ by as much (--rounds 3 tells more), or because the machine is busier or less busy than when the figure
    was measured, by the kernel that is timed around every cycle.

    --steps 10x asks whether the figure lasts: one long run in a fresh process, where completions are as long as
    the policy makes them. Compared raw, and with what the study's cycles at 1x, 2x and the maximum length predict
    for the lengths that came; if that is over 5 % off, the phase that took longer is named. --repeat 10 asks
    what the machine allows: the same trial in ten fresh processes, in turn with the baseline, and their spread;
    what was measured stays, and the same command goes on. Neither counts against the study's budget.

    \b
    Examples:
      autotune verify
      autotune verify my-study --rounds 3 --updates 20
      autotune verify --steps 10x
      autotune verify --repeat 10 --over 8h
    """
    if steps is not None or repeat is not None or over is not None:
        from autotune.cli.commands.verify_runs import VerifyOptions, run

        raise typer.Exit(
            run(study, choice_of(row, trial, native_only), VerifyOptions(steps, repeat, over), as_json, home)
        )
    with reading(home) as (settings, store):
        read = read_study(store, find_study(store, study))
        verdict, document = _run_exported(read, choice_of(row, trial, native_only), store, settings, rounds, updates)
    if as_json:
        console.document(document)
    else:
        _tell_verdict(verdict)
    differs = MachineError.exit_code if verdict.undecided else exit_codes.NOTHING_FEASIBLE
    raise typer.Exit(0 if verdict.agrees else differs)


def _run_exported(
    read: StudyReading, choice: ExportChoice, store: Store, settings: Settings, rounds: int, updates: int
) -> tuple[RunVerdict, dict[str, Any]]:
    """Run it under the study's lock; the verdict and its document, which is stored as an event of the study."""
    from autotune.recommendation import export
    from autotune.specification.interpreter import Interpreter
    from autotune.verify import exported_run

    found, made = read.study, export.build(read, choice, store)
    supporting = export.supporting(made.row, read.trials)
    python = Interpreter(found.spec.python, settings.home.root)
    with store.lock(found.id), interruptible() as stop:
        console.say(f"running the exported command of {clean(found.spec.name)}: {rounds} x {updates} updates")
        try:
            kernel = partial(python.reference_seconds, found.spec.resources.device, made.wanted.threads)
            rehearsal = exported_run.Rehearsal(
                found, supporting, read.trials, made, settings, updates, stop, _progress(), SystemClock(), kernel
            )
            verdict = exported_run.verify(rehearsal, rounds)
        except exported_run.InterruptedVerification:
            console.say("stopped; nothing is left running")
            raise typer.Exit(exit_codes.SIGNAL + (stop.signal or signal.SIGINT)) from None
        document = _verdict_document(found, made, verdict)
        store.add_event(found.id, Event("verified", _sentence(verdict), document, at=time.time()))
    return verdict, document


def _progress() -> Heard:
    before: list[float] = []

    def heard(number: int, update: int, step: LoggedUpdate) -> None:
        took = f"{step.at - before[-1]:.1f} s" if before and update > 1 else "first, not counted"
        length = "" if step.mean_length is None else f", completions of {step.mean_length:.1f} tokens"
        console.say(f"run {number}, update {update}: {took}{length}")
        before.append(step.at)

    return heard


def _verdict_document(study: Study, made: Exported, verdict: RunVerdict) -> dict[str, Any]:
    return {
        "study": plain(study.spec.name),
        "configuration": plain(made.row.configuration),
        "observed_tokens_per_hour": plain(verdict.observed),
        "observed_tokens_per_hour_low": plain(verdict.low),
        "observed_tokens_per_hour_high": plain(verdict.high),
        "stated_tokens_per_hour": plain(verdict.stated),
        "expected_tokens_per_hour": plain(verdict.expected),
        "observed_mean_completion_tokens": plain(verdict.observed_length),
        "stated_mean_completion_tokens": plain(verdict.stated_length),
        "observed_longest_completion_tokens": plain(verdict.observed_longest),
        "stated_longest_completion_tokens": plain(verdict.stated_longest),
        "observed_mean_prompt_tokens": plain(verdict.observed_prompt),
        "stated_mean_prompt_tokens": plain(verdict.stated_prompt),
        "ratio": plain(verdict.ratio),
        "ratio_low": plain(verdict.ratio_low),
        "ratio_high": plain(verdict.ratio_high),
        "within_5_percent": verdict.agrees,
        "undecided": verdict.undecided,
        "reference_kernel_ratio": plain(verdict.machine),
        "cycles": verdict.cycles,
        "updates": verdict.updates,
    }


def _sentence(verdict: RunVerdict) -> str:
    return (
        f"verified: observed {rate(verdict.observed)} tokens/hour where {rate(verdict.expected)} were expected at "
        f"the lengths observed ({signed_percent(verdict.ratio - 1.0)}, {verdict.answer})"
    )


def _tell_verdict(verdict: RunVerdict) -> None:
    interval = f"({rate(verdict.low)} to {rate(verdict.high)}, {verdict.updates} updates)"
    lengths = _lengths(verdict.observed_length, verdict.observed_longest, verdict.observed_prompt)
    stated = _lengths(verdict.stated_length, verdict.stated_longest, verdict.stated_prompt)
    console.line(f"observed {rate(verdict.observed)} tokens/hour {interval}")
    console.line(f"         {lengths}")
    console.line(f"stated   {rate(verdict.stated)} tokens/hour")
    console.line(f"         {stated}")
    console.line(f"expected {rate(verdict.expected)} tokens/hour at the lengths observed")
    ratio = f"{verdict.ratio:.3f} (95 % interval {verdict.ratio_low:.3f} to {verdict.ratio_high:.3f})"
    console.line(f"verdict  {verdict.answer}: observed / expected = {ratio}")


def _lengths(mean: float, longest: float, prompt: float | None) -> str:
    prompts = "" if prompt is None else f"; prompts {prompt:.1f}"
    return f"completions of {mean:.1f} tokens, the longest {longest:.1f}{prompts}"
