"""``autotune start``: runs a study, or continues it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.start_options import StartOptions
from autotune.cli.option_groups import takes
from autotune.cli.options import settings_for
from autotune.cli.screens import study as screens
from autotune.cli.screens.live import begin
from autotune.cli.screens.observer import choose_mode, observing
from autotune.cli.screens.shell_words import command_line, short_path
from autotune.cli.stopping import Notice, SignalStop, leaving, stopping
from autotune.documents.recommendation import recommendation_json
from autotune.documents.study import budget_json, spec_json
from autotune.domain import Budget, FailureReason, Study
from autotune.errors import MachineError, UsageError
from autotune.ports import Observer, Store
from autotune.recommendation.reading import StudyReading, read_study
from autotune.running.launch import let_through
from autotune.settings import Settings
from autotune.statistics.retries import decided
from trainer.child.contract import write_atomic

if TYPE_CHECKING:
    from api.serving import Serving
    from autotune.study.loop import StudyResult
    from autotune.wiring import Prepared, Spread

Say = Callable[[str], None]


@takes(StartOptions)
def start(options: StartOptions) -> None:
    """Searches for the fastest configuration, and confirms it.

    Runs short GRPO trials in sequence or in parallel: first your baseline, then the sampler's proposals, then the
    winner alternating with the baseline. The same command again continues the study; a larger --budget extends it.
    Ctrl-C finishes the running trial and recommends; a second Ctrl-C stops at once. No result is lost.
    After a scheduler's SIGTERM or SIGUSR1 it ends within --grace with exit code 75; run it again to continue.

    \b
    Examples:
      autotune start --budget 10m
      autotune start --budget 4h --config grpo.yaml --python ./env/bin/python
      autotune start --budget 4h --model ./my-model --data prompts.jsonl \\
          --reward my_reward.py:score --python ./env/bin/python
      autotune start --budget 4h --framework swift --config train.sh --python ./swift-env/bin/python
      autotune start --budget 2h --memory-limit 6GiB --set micro_batch_size=2
      autotune start --budget 8h --gpus 8 --rollout-gpus 1 --config grpo.yaml
      autotune start --budget 8h --gpus 1 --at-once 8 --config grpo.yaml
      autotune start --budget 8h --gpus 8 --ray auto --config grpo.yaml --home /shared/autotune
      autotune start --budget 8h --gpus 8 --nodes 2 --ray auto --config grpo.yaml --home /shared/autotune
      autotune start --budget 8h --baseline openr1:qwen2.5-1.5b-demo --python ./openr1-env/bin/python
      autotune start --budget 1h --dry-run
    """
    from autotune.cli.commands.start_request import budget_of, bundled_model, notice_of, request_of
    from autotune.wiring import check_store, lanes_of, prepare

    limits = budget_of(options)
    settings = settings_for(options.home)
    say: Say = (lambda _: None) if options.quiet else console.say
    notice = notice_of(options)
    with _places(options, say) as spread:
        limits = replace(limits, at_once=(options.at_once or 1) if spread is None else len(spread.places))
        request = request_of(options, Path.cwd(), limits.at_once)
        let_through(request.variables)
        here = limits if spread is None else replace(limits, at_once=1)
        with leaving(notice):
            check_store(settings)
        with _page(settings, say, serve=not (options.no_serve or options.dry_run), port=options.port) as page:
            with leaving(notice):
                prepared = prepare(request, settings, say, bundled_model(), here)
            lanes_of(prepared.spec, here.at_once)
            if options.dry_run:
                _show_plan(prepared, limits, as_json=options.as_json)
                return
            _refuse_nothing(prepared, anyway=options.anyway)
            ended = _run(settings, prepared, limits, options, notice, spread)
            if page is not None and ended < exit_codes.RUN_AGAIN:
                page.linger()
    raise typer.Exit(ended)


def _refuse_nothing(prepared: Prepared, *, anyway: bool) -> None:
    """Raises ``UsageError`` if even twice the budget is too short for a trial; 2 allows for forecast errors."""
    plan = prepared.plan
    if plan is not None and not anyway and not plan.pace.trials(2.0 * plan.budget_s):
        raise UsageError(f"{prepared.workload or 'the budget holds no trial'}; --anyway begins all the same")


@contextmanager
def _places(options: StartOptions, say: Say) -> Iterator[Spread | None]:
    """Reserves trial slots of the Ray cluster during the block; yields ``None`` if trials run on this machine."""
    if options.ray is None:
        if options.nodes > 1:
            raise UsageError(f"--nodes {options.nodes}: name the Ray cluster of these nodes with --ray")
        yield None
        return
    from autotune.wiring import take

    spread = take(options.ray, options.gpus, options.at_once, say, together=options.nodes)
    try:
        yield spread
    finally:
        spread.cluster.close()


@contextmanager
def _page(settings: Settings, say: Say, *, serve: bool, port: int | None) -> Iterator[Serving | None]:
    """Serves the study's page during the block. Raises ``UsageError`` if the named port is in use."""
    if not serve:
        yield None
        return
    from api.serving import page_server

    with page_server(settings, say, port=port) as page:
        if page is None and port is not None:
            raise UsageError(f"--port {port} cannot be used; leave it out for the next free one, or --no-serve")
        if page is not None:
            say(f"watch it at {page.url}")
        yield page


def _run(
    settings: Settings, prepared: Prepared, limits: Budget, options: StartOptions, notice: Notice, spread: Spread | None
) -> int:
    from autotune.wiring import begun, loop

    with opened(settings, prepared, notice, fork=options.new, any_sampler=options.sampler is None) as found:
        study, store, stop = found.study, found.store, found.stop
        silent = options.quiet or options.as_json
        if not silent:
            console.say(f"study {study.spec.name} in {settings.home.root}" + (" (continued)" if found.existed else ""))
            if study.spec.sampler != prepared.spec.sampler:
                console.say(f"it goes on with the sampler it began with: {study.spec.sampler}")
            spent = store.spent(study.id)[0]
            console.talk().print(screens.plan_screen(prepared, limits, time.time(), spent))
            say_busy()
        talk: Say = (lambda _: None) if silent else console.say

        def run(prepared: Prepared, study: Study) -> StudyResult:
            study = begun(study, store, settings, prepared.fingerprint, talk, history=not options.no_history)
            with observed(options, study, store, limits, prepared.legal) as observer:
                result = loop(
                    study, limits, store, settings, observer, stop, prepared.fingerprint,
                    allow_busy=options.allow_busy, warm=not options.cold, grace_s=notice.grace_s, spread=spread,
                    prepared=prepared if spread is None and study.spec.name == prepared.spec.name else None,
                    command=shlex.join(["autotune", *sys.argv[1:]]),
                ).run()  # fmt: skip
            if result.successor is None:
                return result
            store.save_fingerprint(study.id, result.successor.fingerprint, time.time())
            return run(result.successor, result.study)

        result = run(prepared, study)
        _end(settings, read_study(store, result.study), result, as_json=options.as_json)
        return exit_code(result, stop)


def _show_plan(prepared: Prepared, limits: Budget, *, as_json: bool) -> None:
    if as_json:
        document = {"type": "plan", **spec_json(prepared.spec), "legal_combinations": prepared.legal}
        console.record({**document, "budget": budget_json(limits)})
    else:
        console.show(screens.plan_screen(prepared, limits, time.time()))


def _end(settings: Settings, read: StudyReading, result: StudyResult, *, as_json: bool) -> None:
    if as_json:
        found = None if result.recommendation is None else recommendation_json(result.recommendation)
        console.record({"type": "end", "ended_by": result.ended_by, "recommendation": found})
        return
    study = read.study
    folder = settings.home.study(study.id, study.spec.name)
    files = {"database": settings.database_shown, "runs": short_path(folder)}
    words = "trials"
    if result.recommendation is not None and result.recommendation.rows:
        words = f"export {shlex.quote(study.spec.name)}"
        answer = folder / "recommendation.json"
        files |= {"answer": short_path(answer), "page": command_line("serve", settings)}
        write_atomic(answer, json.dumps(recommendation_json(result.recommendation), indent=2) + "\n")
    command = command_line(words, settings)
    console.show(screens.end_screen(read, ended_by=result.ended_by, next_command=command, places=files))


def exit_code(result: StudyResult, stop: SignalStop) -> int:
    """Returns the exit code of an ended study (docs/decisions/0012-exit-codes.md)."""
    if stop.preempted:
        return exit_codes.RUN_AGAIN
    if stop.signal is not None:
        return exit_codes.SIGNAL + stop.signal
    if result.halted:
        return MachineError.exit_code
    if result.recommendation is not None and result.recommendation.rows:
        return 0
    judged = any(decided(t) or (t.outcome and t.outcome.reason is FailureReason.REWARD_ERROR) for t in result.trials)
    return exit_codes.NOTHING_FEASIBLE if judged else exit_codes.NO_RESULT


@dataclass(frozen=True)
class OpenedStudy:
    """A stored study that this process can run."""

    study: Study
    store: Store
    stop: SignalStop
    existed: bool


@contextmanager
def opened(
    settings: Settings, prepared: Prepared, notice: Notice, *, fork: bool = False, any_sampler: bool = False
) -> Iterator[OpenedStudy]:
    """Opens the prepared study, or creates it; ``fork`` and ``any_sampler`` as in ``find_or_create``."""
    from autotune.wiring import check_machine, end_processes, find_or_create, open_store_for

    with stopping(console.say, notice) as stop, closing(open_store_for(settings, stop)) as store:
        study, existed = find_or_create(store, prepared.spec, time.time(), fork=fork, any_sampler=any_sampler)
        stop.abandon = partial(end_processes, settings, study.id)
        check_machine(store, study, prepared.fingerprint)
        store.save_fingerprint(study.id, prepared.fingerprint, time.time())
        yield OpenedStudy(study, store, stop, existed)


def say_busy() -> None:
    """Tells the user which other programs use the machine, if any."""
    from autotune.cli.doctor.machine_checks import busy_note
    from autotune.machine import other_load

    if (busy := busy_note(other_load.sample_load(time.sleep))) is not None:
        console.say(busy)


@contextmanager
def observed(
    options: StartOptions, study: Study, store: Store, limits: Budget, legal: int | None
) -> Iterator[Observer]:
    """Yields the observer that shows the run: live table, lines, JSON records or nothing, as the options choose."""
    mode = choose_mode(json=options.as_json, live=not options.no_live, quiet=options.quiet)
    with observing(mode, begin(study, store.trials(study.id), limits, time.time(), legal=legal)) as observer:
        yield observer
