"""``autotune sweep``: record a table of real trials over a space, or write the table of a stored study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.start_options import BudgetOptions, FrameworkOptions, StudyOptions
from autotune.cli.commands.study_run import opened, say_busy, shown
from autotune.cli.option_groups import takes
from autotune.cli.options import find_study, reading, settings_for
from autotune.cli.stopping import Notice, SignalStop, leaving
from autotune.domain import SWEEP, Budget, Study, Trial
from autotune.errors import UsageError
from autotune.ports import Store
from autotune.settings import Settings
from autotune.study.loop import StudyResult
from autotune.tables.sweep import Again, fastest, is_row, owed, steps
from autotune.wording.numbers import format_duration, rate
from autotune.wording.text import clean

if TYPE_CHECKING:
    from autotune.proposals.sweep import SweepProposer
    from autotune.specification.prepare import Prepared


@dataclass(frozen=True)
class SweepOptions(StudyOptions):
    """All of ``autotune sweep``."""

    stored: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Write the table of this stored study with --export, and run nothing."),
    ] = None
    rows: Annotated[
        int | None,
        typer.Option(min=2, help="Rows spread over the space; every legal combination if left out.", metavar="N"),
    ] = None
    repeat_top: Annotated[
        int, typer.Option(min=0, help="So many of the fastest rows are measured again.", metavar="N")
    ] = 20
    times: Annotated[int, typer.Option(min=1, max=100, help="How often they are.", metavar="N")] = 3
    same_learning: Annotated[
        bool, typer.Option("--same-learning", help="Only rows that learn as the baseline does.")
    ] = False
    export: Annotated[
        Path | None, typer.Option(help="Write the table to this file: .jsonl or .jsonl.gz.", metavar="FILE")
    ] = None
    budget: Annotated[
        str | None, typer.Option(help="Stop after this time; the same command goes on: 8h.", metavar="TIME")
    ] = None

    @property
    def again(self) -> Again:
        """Which rows are measured again."""
        return Again(self.repeat_top, self.times)


@takes(SweepOptions)
def sweep(options: SweepOptions) -> None:
    """Record a table of real trials over a whole space.

    Every row is a trial as `autotune start` runs it: the baseline first, then the rows in an order that spares
    restarts, then the fastest again in fresh processes. Failures are rows too. The same command goes on where it was
    broken off; more --rows add to the rows that are there. docs/tables.md says what a table holds.

    \b
    Examples:
      autotune sweep --rows 300 --space space.yaml --memory-limit 6GiB --export cpu.jsonl.gz
      autotune sweep my-sweep --export cpu.jsonl.gz
    """
    settings = settings_for(options.home)
    if options.stored is not None:
        _export_stored(options.stored, options.export, options.home, as_json=options.as_json)
        return
    from autotune.cli.commands.start_request import budget_of, bundled_model, notice_of, request_of
    from autotune.wiring import check_store, prepare

    limits = Budget() if options.budget is None else budget_of(BudgetOptions(options.budget))
    request = request_of(options, FrameworkOptions(), "tpe", Path.cwd())
    notice = notice_of(options)
    with leaving(notice):
        check_store(settings)
        _check_export(options.export)
        prepared = prepare(request, settings, (lambda _: None) if options.quiet else console.say, bundled_model())
    raise typer.Exit(_run(settings, as_sweep(prepared, options.name), limits, options, notice))


def as_sweep(prepared: Prepared, name: str | None) -> Prepared:
    """The prepared study as one that records a table, under a name of its own unless one was given."""
    own = name or f"{prepared.spec.name}-sweep"
    return replace(prepared, spec=replace(prepared.spec, sampler=SWEEP, name=own))


def _run(settings: Settings, prepared: Prepared, limits: Budget, options: SweepOptions, notice: Notice) -> int:
    from autotune.wiring import loop, measured, sweep_proposer

    proposer = sweep_proposer(prepared.spec, rows=options.rows, same_learning=options.same_learning)
    if not options.quiet:
        console.say(planned_sentence(proposer, options.again, prepared.spec.resources.device))
    if options.dry_run:
        return 0
    with opened(settings, prepared, notice) as found:
        study, store, stop = found.study, found.store, found.stop
        if not options.quiet:
            there = sum(is_row(t) and t.state.is_finished for t in store.trials(study.id))
            rows = f", {there} rows there" if found.existed else ""
            console.say(f"study {study.spec.name} in {settings.home.root}{rows}")
            say_busy()
        talk: Callable[[str], None] = (lambda _: None) if options.quiet else console.say
        study = measured(study, store, settings, prepared.fingerprint, talk)
        with shown(options, study, store, limits, prepared.legal) as observer:
            result = loop(
                study, limits, store, settings, observer, stop, prepared.fingerprint,
                allow_busy=options.allow_busy, warm=not options.cold, proposer=proposer, steps=steps(options.again),
                grace_s=notice.grace_s,
            ).run()  # fmt: skip
        return _end(store, result, proposer, options, stop)


def _end(store: Store, result: StudyResult, proposer: SweepProposer, options: SweepOptions, stop: SignalStop) -> int:
    there = any(is_row(t) and t.state.is_finished for t in result.trials)
    written = export_table(store, result.study, options.export) if options.export is not None and there else None
    lines = summary(result.trials, proposer.left(result.trials), options.again)
    if options.as_json:
        table = str(options.export) if written else None
        console.record({"type": "end", "ended_by": result.ended_by, "table": table, "summary": lines})
    else:
        for line in [*lines, *([written] if written else [])]:
            console.line(line)
    if stop.preempted:
        return exit_codes.RUN_AGAIN
    if stop.signal is not None:
        return exit_codes.SIGNAL + stop.signal
    return 0 if fastest(result.trials, 1) else exit_codes.NOTHING_FEASIBLE


def planned_sentence(proposer: SweepProposer, again: Again, device: str) -> str:
    """How many rows, out of how many, and in how many processes at least: on a CPU each has its own."""
    from search_spaces.knobs.model import Restart
    from search_spaces.knobs.restart import restart_key

    rows = proposer.planned
    shared = len({restart_key(c, Restart.NONE) for c in rows})
    where = "each in a process"
    if device == "cuda":
        where = f"in at least {shared} process{'' if shared == 1 else 'es'}"
    repeats = f"; then the {again.top} fastest {again.times} times again" if again.top else ""
    return f"{len(rows) + 1} rows of {len(proposer.legal)} legal combinations, {where}{repeats}"


def summary(trials: tuple[Trial, ...], left: int, again: Again) -> list[str]:
    """Measured, failed and missing rows of the sweep, a line for each."""
    rows = [t for t in trials if is_row(t) and t.state.is_finished]
    failed = Counter(t.outcome.reason.value for t in rows if t.outcome is not None and t.outcome.reason is not None)
    seconds = sorted(t.seconds for t in rows if t.seconds is not None)
    lines = [f"rows     {len(rows)}, {left} still to be run"]
    if failed:
        lines.append("failed   " + ", ".join(f"{reason} {number}" for reason, number in failed.most_common()))
    if seconds:
        lines.append(f"a row    {format_duration(seconds[len(seconds) // 2])} (median), start-up included")
    best = fastest(trials, 1)
    if best:
        speed = next(t.tokens_per_hour for t in rows if t.configuration == best[0] and t.feasible)
        due = 0 if left else len(owed(trials, again))
        lines.append(f"fastest  {rate(speed or 0.0)} tokens/hour" + (f"; {due} repeats still to be run" if due else ""))
    return lines


def export_table(store: Store, study: Study, path: Path) -> str:
    """Writes the table of a stored study; returns the sentence that says so. Raises ``UsageError`` where the study has
    no row yet, or the file cannot be written."""
    from autotune.tables.files import write
    from autotune.tables.table import table_of

    trials = store.trials(study.id)
    worst = {t.number: found for t in trials if (found := store.worst_case(study.id, t.number)) is not None}
    table = table_of(store.study(study.id), trials, worst, store.fingerprint(study.id))
    write(table, path)
    gone = "".join(f"; {number} trials left out: {why}" for why, number in table.header.left_out.items())
    return f"table    {clean(path)}: {len(table.rows)} rows{gone}"


def _export_stored(name: str, path: Path | None, home: Path | None, *, as_json: bool) -> None:
    if path is None:
        raise UsageError("a stored study is named, so nothing is run: say with --export where its table goes")
    with reading(home) as (_, store):
        study = find_study(store, name)
        said = export_table(store, study, path)
    if as_json:
        console.document({"study": study.spec.name, "table": str(path)})
    else:
        console.line(said)


def _check_export(path: Path | None) -> None:
    """Before hours of trials: whether the table could be written at their end."""
    from autotune.tables.files import SUFFIXES

    if path is not None and not path.name.endswith(SUFFIXES):
        raise UsageError(f"--export {path}: a table's name ends in {' or '.join(SUFFIXES)}")
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"--export {path}: there is no folder {path.absolute().parent}")
