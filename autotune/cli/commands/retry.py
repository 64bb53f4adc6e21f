"""``autotune retry``: runs a trial's configuration again."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.compare import comparison_screen
from autotune.cli.commands.start_options import AllowBusyOption, AsJsonOption, NoLiveOption
from autotune.cli.options import HomeOption, StudyArgument, TrialArgument, find_study, reading
from autotune.cli.screens.live import begin
from autotune.cli.screens.observer import choose_mode, observing
from autotune.cli.screens.quantities import parse_duration
from autotune.cli.stopping import stopping
from autotune.documents.study import trial_json
from autotune.domain import Budget, FailureReason, Study, Trial, TrialState
from autotune.errors import UsageError
from autotune.ports import Store
from autotune.recommendation.comparison import compare_trials
from autotune.recommendation.reading import read_study
from autotune.study import protocols


def retry(
    number: TrialArgument,
    study: StudyArgument = None,
    budget: Annotated[str | None, typer.Option(help="Wall-clock limit of this trial: 10m.", metavar="TIME")] = None,
    allow_busy: AllowBusyOption = False,
    as_json: AsJsonOption = False,
    no_live: NoLiveOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result.")] = False,
    home: HomeOption = None,
) -> None:
    """Runs a trial's configuration again; the later result counts.

    Use it for a doubtful figure, or for a failed trial whose cause you have fixed: if the trial passes now, its
    failure no longer rules out other configurations. A retry does not count against --max-trials. It is refused
    while a tuner runs the study, and on another machine.

    \b
    Examples:
      autotune retry 7
      autotune retry 3 my-study --budget 10m

    Exit code 3: the trial failed again; 4: --budget ended first.
    """
    allowed = None if budget is None else parse_duration(budget)
    from autotune.wiring import check_machine, loop, present_fingerprint

    with stopping(console.say) as stop, reading(home, stop) as (settings, store):
        found = find_study(store, study)
        asked = read_study(store, found).trial(number)
        if not asked.state.is_finished:
            state = asked.state.value.lower()
            raise UsageError(f"trial {number} is {state}; only a finished trial can be run again")
        fingerprint = present_fingerprint(found.spec, settings, console.say)
        check_machine(store, found, fingerprint)
        if stop.signal is not None:
            raise typer.Exit(exit_codes.SIGNAL + stop.signal)
        limits = Budget(wall_s=None if allowed is None else store.spent(found.id)[0] + allowed)
        mode = choose_mode(json=as_json, live=not no_live, quiet=quiet)
        with observing(mode, begin(found, store.trials(found.id), limits, time.time())) as observer:
            again = loop(found, limits, store, settings, observer, stop, fingerprint, allow_busy=allow_busy)
            trial = again.retry(protocols.retry_draft(found, store.trials(found.id), asked.configuration))
        _show(store, found, asked, trial, as_json=as_json)
    raise typer.Exit(_exit_code(trial, stop.signal))


def _show(store: Store, study: Study, requested: Trial, trial: Trial, *, as_json: bool) -> None:
    if as_json:
        document = trial_json(trial, study.spec.baseline)
        console.record({"type": "end", "retry_of": requested.number, "trial": document})
        return
    console.line(sentence(requested, trial))
    if trial.tokens_per_hour is not None and requested.tokens_per_hour is not None:
        console.line("")
        console.show(comparison_screen(compare_trials(read_study(store, study), requested, trial)))
    elif trial.attempt:
        console.say(f"`autotune show {trial.number}` shows it in full")


def sentence(requested: Trial, trial: Trial) -> str:
    """Describes the result of the retry, and its effect on the trial that it repeats."""
    if trial.state is TrialState.WAITING:
        return f"trial {trial.number} was broken off; the next `autotune start` or `autotune retry` goes on with it"
    how = "" if trial.outcome is None else trial.outcome.sentence()
    if trial.feasible:
        mended = "" if requested.feasible else f"; the failure of #{requested.number} no longer counts"
        bound = f"; all {len(trial.timed_cycles())} of its cycles were disturbed, so its figure is a lower bound"
        return f"trial {trial.number}, which repeats #{requested.number}: {how}{mended}{bound * trial.only_disturbed}"
    counts = requested.feasible and not trial.inconclusive
    lost = f"; its configuration, feasible in #{requested.number}, no longer is" if counts else ""
    return f"trial {trial.number}, which repeats #{requested.number}: {how}{lost}"


def _exit_code(trial: Trial, signal: int | None) -> int:
    if trial.feasible:
        return 0
    if signal is not None:
        return exit_codes.SIGNAL + signal
    cancelled = trial.outcome is not None and trial.outcome.reason is FailureReason.CANCELLED
    return exit_codes.NO_RESULT if cancelled else exit_codes.NOTHING_FEASIBLE
