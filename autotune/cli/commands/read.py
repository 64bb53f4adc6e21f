"""The reading commands: status, trials, best. Each prints text for people or, with --json, a document."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autotune.cli import console
from autotune.cli.commands.start_options import PriceOption, UpdatesOption
from autotune.cli.options import HomeOption, JsonOption, StudyArgument
from autotune.cli.screens.live import failure_lines
from autotune.cli.screens.shell_words import short_path
from autotune.cli.screens.study import end_screen
from autotune.cli.screens.tables import STANDINGS_WIDTH, TRIALS_WIDTH, knob_columns, standings_table, trials_table
from autotune.cli.screens.text import clock_time
from autotune.cli.source import Here, Served, UrlOption, source_at
from autotune.documents.study import trial_json
from autotune.domain import Trial, TrialKind, TrialState
from autotune.errors import UsageError
from autotune.insights.standings import best_first, count, standings
from autotune.insights.why import Why, why_json
from autotune.recommendation.current import Life, Lives, answer_document, status_document
from autotune.recommendation.places import busy_words, idle_words
from autotune.recommendation.reading import AnswerSource, RunState, StudyReading
from autotune.wording.numbers import counted, format_duration
from autotune.wording.sentences import PERMITTED_NOTE, phase_words
from autotune.wording.text import brief, clean

BEST_SHOWN = 5


class TrialOrder(StrEnum):
    """Order of ``autotune trials``."""

    SPEED = "speed"
    NUMBER = "number"


def status(
    study: StudyArgument = None, as_json: JsonOption = False, home: HomeOption = None, url: UrlOption = None
) -> None:
    """Shows a study's progress: budget, running trials, best so far.

    \b
    Examples:
      autotune status
      autotune status my-study --json
    """
    with source_at(home, url) as source:
        found = source.read(study)
        more = {t.number: source.trial(found.study, t) for t in found.running}
    lives, now = {n: one.life for n, one in more.items()}, max((one.now for one in more.values()), default=time.time())
    if as_json:
        console.document(status_document(found, lives, now))
    else:
        console.show(_status_screen(found, lives, now), None)


def _status_screen(read: StudyReading, lives: Lives, now: float) -> RenderableType:
    study, trials, spent, limits = read.study, read.trials, read.spent, read.limits
    spec = study.spec
    used = format_duration(spent[0]) + (f" of {format_duration(limits.wall_s)}" if limits.wall_s else "")
    used += f", {spent[1] / 3600:.2f} GPU-hours" if spent[1] else ""
    used += f" of {limits.gpu_hours:g}" if limits.gpu_hours else ""
    used += f"; at most {counted(limits.max_trials, 'trial')}" if limits.max_trials else ""
    begun = clock_time(study.created_at, today=now)
    again = ", the same command continues it" if read.state is RunState.INTERRUPTED else ""
    lines: list[RenderableType] = [
        Text(f"{clean(spec.name)} · {read.state.value}{again} · {clean(spec.framework)} · begun {begun}", "bold"),
        Text(f"model    {clean(spec.workload.model)} on {read.machine}", overflow="fold"),
        Text(f"used     {used}"),
        Text(f"trials   {count(trials).sentence(alive=read.alive)}"),
    ]
    running = [_running_words(read, t, lives.get(t.number), now) for t in read.running]
    lines += [Text(f"running  {words}", "cyan", overflow="fold") for words in running or ["nothing"]]
    lines += [Text(f"places   {words}", overflow="fold") for words in idle_words(read.places)]
    lines += [Text(f"GPUs     {clean(sentence)}", "red", overflow="fold") for sentence in read.avoided_gpus]
    lines += [Text(line, "red") for line in failure_lines(trials, study)]
    if ranked := standings(trials, spec.baseline, spec.framework, BEST_SHOWN):
        shown = [spec.baseline, *(row.configuration for row in ranked)]
        columns = knob_columns(shown, console.out(None).width - STANDINGS_WIDTH)
        lines += [Text(), standings_table(ranked, columns, spec.baseline)]
        lines.append(Text(columns.legend(), "dim", overflow="fold"))
        if any(not row.same_learning for row in ranked):
            lines.append(Text(PERMITTED_NOTE, "dim"))
    return Group(*lines)


def _running_words(read: StudyReading, trial: Trial, life: Life | None, now: float) -> str:
    what = "" if trial.number == 0 else f" [{brief(trial.configuration, read.study.spec.baseline)}]"
    here = [p for p in read.places if p.trial == trial.number]
    parts = [text for place in here for text in (clean(place.at.short), busy_words(place)) if text]
    where = "starting"
    if life is not None:
        where = f"{phase_words(life[0])}, last update {format_duration(max(0.0, now - life[1]))} ago"
    return f"{', '.join([f'#{trial.number} {trial.kind.value}', *parts])}: {where}{what}"


def trials(
    study: StudyArgument = None,
    state: Annotated[TrialState | None, typer.Option(case_sensitive=False, help="List trials in this state.")] = None,
    kind: Annotated[TrialKind | None, typer.Option(case_sensitive=False, help="List trials of this kind.")] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="KNOB=VALUE", help="List trials with this value, or in LOW..HIGH.")
    ] = None,
    sort: Annotated[TrialOrder, typer.Option(help="Order: best first, or as they ran.")] = TrialOrder.SPEED,
    as_json: JsonOption = False,
    home: HomeOption = None,
    url: UrlOption = None,
) -> None:
    """Lists trials, best first, with the knobs that differ.

    \b
    Examples:
      autotune trials
      autotune trials --state fail --sort number
      autotune trials --knob micro_batch_size=2..8 --knob precision=bf16
      autotune trials my-study --json | jq '.trials[0]'
    """
    with source_at(home, url) as source:
        read = source.read(study)
    found, every = read.study, read.trials
    chosen = [t for t in every if state in (None, t.state) and kind in (None, t.kind)]
    for text in knob or ():
        from api.filters import knob_is
        from search_spaces.knobs import KNOBS

        name, _, value = text.replace("=", ":", 1).partition(":")
        if name not in KNOBS or not value:
            raise UsageError(f"--knob {clean(text)}: expected KNOB=VALUE or KNOB=LOW..HIGH")
        chosen = [t for t in chosen if knob_is(t.configuration.get(name), value)]
    ordered = best_first(chosen) if sort is TrialOrder.SPEED else sorted(chosen, key=lambda t: t.number)
    if as_json:
        console.document({"study": found.spec.name, "trials": [trial_json(t, found.spec.baseline) for t in ordered]})
        return
    if not ordered:
        console.say("no trial matches" if every else f"study {clean(found.spec.name)} has no trial yet")
        return
    columns = knob_columns([t.configuration for t in ordered], console.out(None).width - TRIALS_WIDTH)
    console.show(trials_table(ordered, columns), None)
    if columns.legend():
        console.say(columns.legend())


WhyOption = Annotated[bool, typer.Option("--why", help="Show all evidence: each knob, ruled-out values, every note.")]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(help="Show the loss in speed if this knob keeps this value; may be repeated.", metavar="KNOB=VALUE"),
]


def best(
    study: StudyArgument = None,
    updates: UpdatesOption = None,
    price: PriceOption = None,
    why: WhyOption = False,
    keep: KeepOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    url: UrlOption = None,
) -> None:
    """Shows the recommendation, or the best trial so far.

    \b
    Examples:
      autotune best
      autotune best --why
      autotune best --keep attn_implementation=sdpa
      autotune best --updates 2000 --price 2.50
      autotune best --json | jq '.why.rows[0].shares'
    """
    from autotune.recommendation.whole_run import check_asked, whole_run, whole_run_json, whole_run_words

    check_asked(updates, price)
    if as_json and keep:
        raise UsageError("--keep answers in sentences, so it cannot be used with --json")
    with source_at(home, url) as source:
        read = source.read(study)
    found, recommendation = read.study, read.recommendation
    reasons = None
    if why or as_json:
        from autotune.forecast.explain import explain

        reasons = explain(read)
    run = None if updates is None else whole_run(found.spec, read.trials, recommendation, updates, price)
    if as_json:
        document = {**answer_document(read), "why": why_json(reasons)}
        console.document(document | ({"whole_run": whole_run_json(run)} if updates else {}))
    elif keep is not None:
        from autotune.cli.commands.start_request import knobs_of
        from autotune.recommendation.comparison import keeping_words

        console.line("\n".join(keeping_words(read, knobs_of(keep, "--keep"))))
    else:
        _show_answer(source, read, reasons, () if run is None else whole_run_words(run), whole=why)


def _show_answer(
    source: Here | Served, read: StudyReading, reasons: Why | None, run: Sequence[str], *, whole: bool
) -> None:
    from autotune.cli.screens.study import why_screen

    if read.source is AnswerSource.BEST_SO_FAR and read.first_row is not None:
        console.say("best so far; the study has not given its recommendation on these trials")
    spec, recommendation = read.study.spec, read.recommendation
    command = source.command("trials" if read.first_row is None else f"export {shlex.quote(spec.name)}")
    ended_by = "no trial has succeeded" if recommendation is None else recommendation.ended_by
    serve = f" · {source.command('serve')}" if source.home else ""
    where = {"more": f"{source.command('best --why')}{serve}"}
    if source.home and whole:
        where = {"runs": short_path(source.home.study(read.study.id, spec.name))}
    if read.verified is not None:
        where["verified"] = f"{clock_time(read.verified.at, today=time.time())} {clean(read.verified.message)}"
    console.show(end_screen(read, ended_by=ended_by, next_command=command, run=run, places=where, whole=whole))
    if reasons is not None:
        console.show(why_screen(reasons))
