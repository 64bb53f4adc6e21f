"""``autotune start``: run a study, or continue it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from autotune.cli import console, screens
from autotune.cli.durations import parse_duration
from autotune.cli.live import begin
from autotune.cli.observer import choose_mode, observing
from autotune.cli.options import HomeOption, settings_for
from autotune.cli.sizes import parse_size
from autotune.domain import Budget, Study, TrialKind
from autotune.errors import UsageError
from autotune.serialise import recommendation_json
from autotune.settings import Settings
from autotune.study import StudyResult
from search_spaces.configuration import KnobValue
from search_spaces.space import parse_value
from trainer.child.contract import write_atomic

BUNDLED_VARIABLE = "AUTOTUNE_BUNDLED_MODEL"

EXIT_NOTHING_FEASIBLE = 3
EXIT_NO_RESULT = 4
EXIT_SIGNAL = 128


@dataclass(frozen=True)
class WorkloadSize:
    """Defaults for what the user did not say about the workload."""

    rows_per_update: int
    max_completion_length: int


CPU_SIZE = WorkloadSize(rows_per_update=8, max_completion_length=32)
GPU_SIZE = WorkloadSize(rows_per_update=64, max_completion_length=256)
MAX_PROMPT_LENGTH = 96


def start(
    budget: Annotated[
        str | None, typer.Option(help="Wall-clock time for the whole study: 10m, 4h, 1h30m.", metavar="TIME")
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Search at most N trials, the baseline included; confirming comes on top.", metavar="N"
        ),
    ] = None,
    gpu_hours: Annotated[float | None, typer.Option(min=0.0, help="GPU time: GPUs held x hours.", metavar="H")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model folder; the bundled model if it is left out.", metavar="DIR")
    ] = None,
    python: Annotated[
        str, typer.Option(help="Interpreter of your training environment.", metavar="PATH")
    ] = sys.executable,
    task: Annotated[str, typer.Option(help="reasoning-gym task the prompts come from.", metavar="NAME")] = "chain_sum",
    rows_per_update: Annotated[
        int | None, typer.Option(min=2, help="Completions per optimizer update; fixed for all trials.", metavar="N")
    ] = None,
    max_prompt_length: Annotated[
        int, typer.Option(min=1, help="Longest prompt, in tokens.", metavar="N")
    ] = MAX_PROMPT_LENGTH,
    max_completion_length: Annotated[
        int | None, typer.Option(min=2, help="Longest completion, in tokens.", metavar="N")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A knob of your present configuration: --set micro_batch_size=4.", metavar="KNOB=VALUE"
        ),
    ] = None,
    space: Annotated[str | None, typer.Option(help="Search space: a preset or a YAML file.", metavar="SPACE")] = None,
    sampler: Annotated[str, typer.Option(help="Who proposes: tpe, random or grid.", metavar="NAME")] = "tpe",
    seed: Annotated[int, typer.Option(help="Of the sampler and the prompts.", metavar="N")] = 0,
    memory_limit: Annotated[
        str | None, typer.Option(help="Host memory of a trial's whole process tree: 6GiB.", metavar="SIZE")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study.", metavar="NAME")] = None,
    new: Annotated[bool, typer.Option("--new", help="Start beside a study of this name that differs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="Measure although others use the GPU; results are marked.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record per event on stdout.")] = False,
    no_live: Annotated[bool, typer.Option("--no-live", help="Plain lines instead of the live table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the end screen.")] = False,
    home: HomeOption = None,
) -> None:
    """Search for the fastest configuration, confirm it, and say how sure that is.

    Runs short real GRPO trials one after the other: your baseline first, then proposals, then the
    winner next to the baseline. The same command again continues the study; more budget extends it.
    Ctrl-C once finishes the running trial and recommends; twice stops at once. Nothing is lost.

    \b
    Examples:
      autotune start --budget 10m
      autotune start --budget 4h --model ./my-model --python ./env/bin/python
      autotune start --budget 2h --memory-limit 6GiB --set micro_batch_size=2
      autotune start --budget 1h --dry-run
    """
    limits = _budget(budget, max_trials, gpu_hours)
    settings = settings_for(home)
    wiring = import_module("autotune.wiring")
    hardware = import_module("autotune.hardware")
    size = GPU_SIZE if hardware.visible_gpus() else CPU_SIZE
    request = import_module("autotune.preparation").Request(
        model=_model(model),
        task=task,
        rows_per_update=rows_per_update or size.rows_per_update,
        max_prompt_length=max_prompt_length,
        max_completion_length=max_completion_length or size.max_completion_length,
        baseline=_knobs(baseline or []),
        space=space,
        sampler=sampler,
        seed=seed,
        name=name,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        python=str(Path(python).expanduser().absolute()),
    )
    say = (lambda _: None) if quiet else console.say
    prepared = wiring.prepare(request, settings, say)
    if dry_run:
        console.show(_plan(prepared, limits, 0.0))
        return
    ended = _run(wiring, settings, prepared, limits, Show(as_json, no_live, quiet), fork=new, allow_busy=allow_busy)
    raise typer.Exit(ended)


@dataclass(frozen=True)
class Show:
    """How the run is shown."""

    as_json: bool
    no_live: bool
    quiet: bool


def _run(
    wiring: Any, settings: Settings, prepared: Any, limits: Budget, show: Show, *, fork: bool, allow_busy: bool
) -> int:
    store = wiring.open_store_for(settings)
    try:
        study, existed = wiring.find_or_create(store, prepared.spec, time.time(), fork=fork)
        wiring.check_machine(store, study, prepared.fingerprint)
        store.save_fingerprint(study.id, prepared.fingerprint, time.time())
        spent = store.spent(study.id)[0]
        if not (show.quiet or show.as_json):
            console.say(f"study {study.spec.name} in {settings.home.root}" + (" (continued)" if existed else ""))
            console.talk().print(_plan(prepared, limits, spent))
        mode = choose_mode(
            json=show.as_json, live=not show.no_live, quiet=show.quiet, terminal=console.talk().is_terminal
        )
        state = begin(study, store.trials(study.id), limits, time.time(), legal=prepared.legal)
        with stopping(console.say) as stop, observing(mode, state) as observer:
            loop = wiring.loop(
                study, limits, store, settings, observer, stop, prepared.fingerprint, allow_busy=allow_busy
            )
            result = loop.run()
        _end(settings, study, result, store.spent(study.id)[0], show)
        return _exit_code(result, stop)
    finally:
        store.close()


def _plan(prepared: Any, limits: Budget, spent: float) -> Any:
    return screens.plan_screen(
        prepared.spec,
        limits,
        legal=prepared.legal,
        same_learning=prepared.same_learning,
        now=time.time(),
        spent_wall_s=spent,
    )


def _end(settings: Settings, study: Study, result: StudyResult, spent: float, show: Show) -> None:
    if show.as_json:
        found = None if result.recommendation is None else recommendation_json(result.recommendation)
        console.record({"type": "end", "ended_by": result.ended_by, "recommendation": found})
        return
    folder = settings.home.study(study.id, study.spec.name)
    files = {"database": settings.home.database, "runs": folder}
    best = None
    if result.recommendation is not None and result.recommendation.rows:
        best = result.recommendation.rows[0].trials[-1]
        files["answer"] = folder / "recommendation.json"
        write_atomic(files["answer"], json.dumps(recommendation_json(result.recommendation), indent=2) + "\n")
    console.show(
        screens.end_screen(
            result.recommendation,
            result.study,
            result.trials,
            ended_by=result.ended_by,
            spent_wall_s=spent,
            files=files,
            next_command=f"autotune show {best}" if best is not None else "autotune trials",
        )
    )


def _exit_code(result: StudyResult, stop: SignalStop) -> int:
    if stop.signal is not None:
        return EXIT_SIGNAL + stop.signal
    if result.recommendation is not None and result.recommendation.rows:
        return 0
    searched = [t for t in result.trials if t.kind is not TrialKind.CONFIRM]
    measured = any(t.cycles for t in searched)
    return EXIT_NOTHING_FEASIBLE if measured or len(searched) > 1 else EXIT_NO_RESULT


def _budget(budget: str | None, max_trials: int | None, gpu_hours: float | None) -> Budget:
    if budget is None and max_trials is None and gpu_hours is None:
        raise UsageError("give the study a limit: --budget 4h, --max-trials 40 or --gpu-hours 8")
    if gpu_hours is not None and gpu_hours <= 0:
        raise UsageError("--gpu-hours must be more than 0")
    return Budget(None if budget is None else parse_duration(budget), max_trials, gpu_hours)


def _model(given: Path | None) -> Path:
    bundled = os.environ.get(BUNDLED_VARIABLE, "")
    if given is None and not bundled:
        raise UsageError("name a model folder with --model; `make start` brings a small one of its own")
    return Path(given or bundled).expanduser().absolute()


def _knobs(words: list[str]) -> dict[str, KnobValue]:
    values: dict[str, KnobValue] = {}
    for word in words:
        knob, sign, text = word.partition("=")
        if not sign:
            raise UsageError(f"--set {word}: expected KNOB=VALUE, such as --set micro_batch_size=4")
        values[knob.strip()] = parse_value(knob.strip(), text.strip())
    return values


class SignalStop:
    """What the user asked for by Ctrl-C: once = after this trial, twice = now. SIGTERM and SIGHUP = now."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.level = 0
        self.signal: int | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.level = 2 if number != signal.SIGINT else min(2, self.level + 1)
        if self.level == 1:
            self._say("finishing the running trial, then recommending; Ctrl-C again stops at once")
        else:
            self._say("stopping now; everything measured is kept, the same command continues")


@contextmanager
def stopping(say: Callable[[str], None]) -> Iterator[SignalStop]:
    """A stop token driven by signals while the block runs."""
    stop = SignalStop(say)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(start)
