"""``autotune watch``: predicts problems of a training run from its log."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.export import RowOption, TrialOption
from autotune.cli.options import HomeOption, JsonOption, find_study, reading
from autotune.cli.screens.quantities import parse_duration, parse_size
from autotune.cli.stopping import Interrupt, interruptible
from autotune.errors import NotFoundError, UsageError
from autotune.wording.text import bounded, clean

if TYPE_CHECKING:
    from autotune.watch.findings import Finding
    from autotune.watch.log_file import LogFile
    from autotune.watch.tuned import TunedRun

EVERY_S, LEAST_S = 60.0, 1.0
"""Seconds between two readings with ``--follow``: the default, about one step, and the smallest allowed."""
PATIENCE_S = 10.0
"""Timeout of a webhook, in seconds."""

LogArgument = Annotated[
    Path,
    typer.Argument(metavar="LOG", help="The run's output, logging.jsonl, trainer_state.json, its folder, or a .db."),
]
StudyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Study whose configuration the run uses. Default: use only the log.")
]
LimitOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="GPU memory for training, such as 80GiB. Default: from the log.")
]
RunOption = Annotated[str | None, typer.Option(metavar="NAME", help="Run in Trackio's database. Default: the newest.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Keep reading as the log grows; print new findings.")]
EveryOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time between readings, such as 10m. Default: 60s. Implies --follow."),
]
NotifyOption = Annotated[
    str | None, typer.Option(metavar="URL", help="POST new urgent findings to this URL, as one JSON document.")
]


def watch(
    log: LogArgument,
    study: StudyOption = None,
    row: RowOption = 1,
    trial: TrialOption = None,
    memory_limit: LimitOption = None,
    run: RunOption = None,
    follow: FollowOption = False,
    every: EveryOption = None,
    notify: NotifyOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Watches a training run through its log.

    Reads the logs of TRL, Open-R1, ms-swift and verl, and Trackio's database, while the run trains or after it.
    Predicts the step at which growing completions exceed the memory. Reports slower steps, memory leaks, and,
    with --study, whether the speed is as predicted and another configuration is now faster; nothing without evidence.
    Exit code 0: nothing to do; 3: act soon; 4: act now.

    \b
    Examples:
      autotune watch train.log
      autotune watch outputs/ --study my-study --follow --every 10m
      autotune watch train.log --memory-limit 80GiB --notify https://hooks.example.org/x
    """
    from autotune.watch.log_file import LogFile

    interval = EVERY_S if every is None else max(LEAST_S, parse_duration(every, "--every"))
    limit = None if memory_limit is None else float(parse_size(memory_limit))
    if notify is not None and not notify.startswith(("http://", "https://")):
        raise UsageError(f"--notify {clean(notify)}: expected an address that begins with http:// or https://")
    tuned = None if study is None else _tuned(study, row, trial, limit, home)
    following = follow or every is not None
    file, first = LogFile(log, run), True
    findings: tuple[Finding, ...] | None = None
    with interruptible() as stop:
        while True:
            ends = _read(file, following and stop.signal is None)
            before, findings = findings, _look(file, limit, tuned)
            if file.series.steps or first or ends:
                _show(file, findings, before, as_json=as_json, following=following)
            _notify(notify, file, findings, before or ())
            if ends:
                break
            first, findings = False, findings if file.series.steps else None
            _wait(interval, stop)
    if stop.signal is not None:
        raise typer.Exit(exit_codes.SIGNAL + stop.signal)
    raise typer.Exit((0, exit_codes.ACT_SOON, exit_codes.ACT_NOW)[max((f.level for f in findings), default=0)])


def _read(file: LogFile, following: bool) -> bool:
    """Reads the new lines; returns True if no more will follow."""
    try:
        note = file.poll()
    except UsageError as error:  # between two files of a rotation, or while a network drive is away
        if not (following and file.series.steps):
            raise
        note = str(error)
    if note:
        console.say(clean(note))
    if following and not file.series.ended:
        return False
    file.close()
    return True


def _wait(seconds: float, stop: Interrupt) -> None:
    until = time.monotonic() + seconds
    while stop.signal is None and (left := until - time.monotonic()) > 0.0:
        time.sleep(min(left, 0.2))  # a signal does not end a sleep


def _tuned(study: str, row: int, trial: int | None, limit: float | None, home: Path | None) -> TunedRun:
    from autotune.cli.commands.export import choice_of
    from autotune.recommendation.export import chosen
    from autotune.recommendation.reading import read_study
    from autotune.watch.tuned import tuned_run

    with reading(home) as (_, store):
        read = read_study(store, find_study(store, study))
    found = tuned_run(read.study, read.trials, chosen(read, choice_of(row, trial, False)), limit)
    if found is None:
        raise NotFoundError(f"study {clean(read.study.spec.name)} has no measured speed of that configuration")
    return found


def _look(file: LogFile, limit: float | None, tuned: TunedRun | None) -> tuple[Finding, ...]:
    """Returns the findings. Raises ``UsageError`` for a log that contains two runs."""
    from autotune.watch.findings import look

    series = file.series
    if series.mixed:
        raise UsageError(
            f"{clean(file.path)} holds two runs: {series.conflicts} of {series.lines} lines contradict an earlier one "
            "of the same step; watch one file a run, or name --run"
        )
    return look(series, limit, tuned)


def _show(
    file: LogFile, findings: Sequence[Finding], before: Sequence[Finding] | None, *, as_json: bool, following: bool
) -> None:
    """Prints the run's state and findings; only new findings if ``before`` has those of the previous reading."""
    from autotune.watch.findings import lacking, news, state_words

    series, first, new = file.series, before is None, news(before or (), findings)
    if as_json:
        if first or new:
            (console.record if following else console.document)(_document(file, findings))
        return
    if not series.steps:
        console.say(_empty(file))
        return
    if first:
        console.line(state_words(series))
        for last, back in series.restarts[-3:]:
            console.line(f"the run was restarted: after step {last:,} the log goes on from step {back:,}")
        if missing := lacking(series):
            console.line(f"the log lacks {'; '.join(missing)}: nothing is said that needs it")
    for finding in new:
        urgent = ("", "soon: ", "now: ")[finding.level]
        console.line(f"{'' if first else f'step {series.steps[-1].number:,}: '}{urgent}{finding.sentence}")


def _empty(file: LogFile) -> str:
    return (
        f"{clean(file.path)} has no step with completions/mean_length or completion_length (TRL, Open-R1, ms-swift) "
        "or response_length/mean (verl), so there is nothing to watch"
    )


def _document(file: LogFile, findings: Sequence[Finding]) -> dict[str, Any]:
    from autotune.watch.findings import lacking

    steps = file.series.steps
    return {
        "log": clean(file.path),
        "at": time.time(),
        "step": steps[-1].number if steps else None,
        "of": file.series.last_step,
        "restarts": file.series.restarts,
        "lacks": lacking(file.series),
        "findings": [finding.document for finding in findings],
    }


def _notify(url: str | None, file: LogFile, findings: Sequence[Finding], before: Sequence[Finding]) -> None:
    """Sends the urgent findings that are new; a failing webhook does not end the watch."""
    from autotune.watch.findings import news

    new = [finding for finding in news(before, findings) if finding.level]
    if url is None or not new:
        return
    document = {**_document(file, new), "text": "\n".join(finding.sentence for finding in new)}
    body = json.dumps(document, allow_nan=False).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 (http, as checked)
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()  # noqa: S310
    except (OSError, ValueError) as error:
        console.say(f"--notify {clean(url)} was not reached: {bounded(clean(error))}")
