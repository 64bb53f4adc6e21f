"""``python -m benchmarks.overhead MODEL --out DIR``: what trials cost besides what they measure, cold and warm.

The same list of configurations, in the order a study might try them, is run by the runner of ``autotune start``:
``cold`` starts a process for each trial, ``warm`` does all that is done to spare that. A block is the list in one mode;
blocks of the two modes alternate, and every second pair is turned round. ``--in-turns`` puts the two trials of a
configuration next to each other instead, for whether they measure the same; a warm one then waits for more imports than
in a study, because nothing is kept beside a cold one. ``--bare`` adds a third mode: as ``cold``, but what compilers
keep is empty for every trial, as it is where each runs in a new container. One call does as much as fits into a slice;
the same command goes on. After every trial the page ``overhead.md`` in DIR is written again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune import wiring
from autotune.domain import Configuration, Study, StudySpec, Trial, TrialKind, TrialState
from autotune.errors import AutotuneError
from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from autotune.ports import Assignment, RunReport, TrialRunner
from autotune.running.warm_pool import WarmWorkerPool, restores_memory
from autotune.settings import Settings, read_settings
from autotune.specification.request import Request
from benchmarks.gpu.journal import append, rows
from benchmarks.overhead_list import COMPILED, LIST, SHORT, order, whole
from benchmarks.overhead_table import BARE, WARM, Row, markdown
from search_spaces.space import SearchSpace
from trainer.child.contract import CurrentPhase, CycleRecord, NoteRecord, Record, StartupRecord

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 900.0
KEPT_BY = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT")
"""Variables that say where compilers and engines keep what they made."""
FIRST_S = 150.0
"""Wall seconds of a trial while none like it has been measured."""
CAUTION = 1.25


@dataclass
class Asked:
    """Set by a signal: the trial that runs then is run again."""

    level: int = 0

    def listen(self) -> None:
        """From now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.level = 2


@dataclass
class Heard:
    """What a trial tells."""

    enough = None
    """Every trial has all its cycles."""

    cycles: list[CycleRecord] = field(default_factory=list)
    startup: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def record(self, record: Record) -> None:
        """One record of the trial."""
        if isinstance(record, CycleRecord) and record.rank == 0:
            self.cycles.append(record)
        elif isinstance(record, StartupRecord):
            self.startup[record.part.value] = record.seconds
        elif isinstance(record, NoteRecord) and "why" in record.data:
            self.notes.append(f"{record.name}: {record.data['why']}")

    def phase(self, phase: CurrentPhase) -> None:
        """Not of interest."""

    def tick(self) -> None:
        """Not of interest."""


def row_of(place: tuple[int, str, int], report: RunReport, heard: Heard) -> Row:
    """A finished trial as plain data."""
    block, mode, index = place
    reason = report.outcome.reason
    cycles = [
        {
            "kind": cycle.cycle_kind.value,
            "seconds": cycle.seconds,
            "tokens": cycle.completion_tokens,
            "accepted": cycle.accepted,
            "noisy": cycle.noisy,
            "drift": cycle.drift,
            "outside_cpu": cycle.outside_cpu,
        }
        for cycle in heard.cycles
    ]
    return {
        "block": block,
        "mode": mode,
        "index": index,
        "reason": None if reason is None else reason.value,
        "message": report.outcome.message,
        "seconds": report.seconds,
        "startup": heard.startup,
        "cycles": cycles,
        "host_peak": report.host_peak,
        "notes": heard.notes,
    }


def predicted(done: Sequence[Row], place: tuple[int, str, int]) -> float:
    """Wall seconds of the next trial: as long as the longest of the same configuration so far."""
    alike = [row["seconds"] for row in done if row["index"] == place[2]]
    return CAUTION * max(alike) if alike else FIRST_S


@dataclass(frozen=True)
class Bench:
    """A run in its folder."""

    out: Path
    spec: StudySpec
    settings: Settings
    configurations: Mapping[str, Configuration]
    lengths: tuple[int, ...]
    blocks: int
    in_turns: bool = False
    bare: bool = False

    @property
    def file(self) -> Path:
        """Finished trials, a line each."""
        return self.out / "overhead.jsonl"

    def done(self) -> list[Row]:
        return list(rows(self.file))

    def go_on(self, slice_s: float, stop: Asked) -> int:
        """Trials left when the slice is over."""
        clock = SystemClock()
        began, runner, before = clock.monotonic(), None, ""
        places = order(self.blocks, len(self.configurations), in_turns=self.in_turns, bare=self.bare)
        there = {(row["block"], row["mode"], row["index"]) for row in self.done()}
        left = [place for place in places if place not in there]
        while left and stop.level == 0:
            spent = clock.monotonic() - began
            if runner is not None and spent + predicted(self.done(), left[0]) > slice_s:
                break
            if runner is None or left[0][1] != before:
                release(runner)
                runner, before = self.runner(left[0][1]), left[0][1]
            if not self.run(runner, left[0], stop):
                break
            left.pop(0)
        release(runner)
        return len(left)

    def runner(self, mode: str) -> TrialRunner:
        clock, warm = SystemClock(), mode == WARM
        used = warm and restores_memory(self.spec.resources.device)
        keeper = WarmWorkerPool(self.out / "workers", clock) if used else None
        return wiring.runner_for(self.spec, self.settings, clock, keeper=keeper, preload=warm)

    def run(self, runner: TrialRunner, place: tuple[int, str, int], stop: Asked) -> bool:
        """Run a trial and keep it; false if the user ended it."""
        _, mode, index = place
        name, configuration = list(self.configurations.items())[index]
        study = Study(1, self.spec, created_at=0.0, lengths=self.lengths)
        number = len(self.done())
        trial = Trial(
            study_id=1,
            number=number,
            kind=TrialKind.SEARCH,
            configuration=configuration,
            protocol=replace(self.spec.protocol, natural=0, lengths=self.lengths),
            rows_per_update=study.rows(configuration),
            state=TrialState.RUNNING,
            attempt=1,
        )
        directory = self.out / "attempts" / f"{number:03}"
        shutil.rmtree(directory, ignore_errors=True)
        heard = Heard()
        with empty_caches(self.out / "caches") if mode == BARE else contextlib.nullcontext():
            report = runner.run(Assignment(study, trial, directory, DEADLINE_S), heard, stop)
        if stop.level:
            return False
        shutil.rmtree(directory / "scratch", ignore_errors=True)
        append(self.file, dict(row_of(place, report, heard)))
        (self.out / "overhead.md").write_text(markdown(self.done(), list(self.configurations), machine()))
        text = "ok" if report.outcome.ok else report.outcome.sentence()
        print(f"block {place[0] + 1} {mode}: {name}: {report.seconds:.1f} s, {text}", flush=True)
        return True


@contextlib.contextmanager
def empty_caches(folder: Path) -> Iterator[None]:
    """Inside, what compilers and engines keep is kept in a folder that was empty and is removed afterwards."""
    before = {name: os.environ.get(name) for name in KEPT_BY}
    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.environ.update({name: str(folder / name) for name in KEPT_BY})
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def release(runner: TrialRunner | None) -> None:
    """End what a runner keeps between trials."""
    if runner is not None:
        runner.close()


def machine() -> str:
    """One line."""
    found = hardware.describe()
    return f"{found['cpu']}, {found['cores']} cores, {found['memory'] / 2**30:.0f} GiB of memory."


def prepared(wanted: argparse.Namespace) -> Bench:
    """Raises ``AutotuneError``: model or interpreter cannot be used."""
    settings = read_settings(environ={}, home=wanted.out.resolve() / "home")
    request = Request(
        model=str(Path(wanted.model).resolve()),
        python=wanted.python,
        space="cpu",
        gpus=0,
        rows_per_update=wanted.rows,
        max_completion_length=wanted.completion,
        max_prompt_length=wanted.prompt,
        name="overhead",
    )
    spec = wiring.prepare(request, settings, lambda line: print(line, flush=True)).spec
    space = SearchSpace.from_json(spec.space)
    known = {**LIST, **COMPILED} if wanted.bare else LIST
    names = SHORT if wanted.short else tuple(known)
    chosen = {name: space.complete(whole(spec, known[name]), spec.resources) for name in names}
    if wanted.short:
        spec = replace(spec, protocol=replace(spec.protocol, recorded=2))
    chance = random.Random(0)  # noqa: S311  (repeatable on purpose)
    longest = spec.workload.max_completion_length
    lengths = tuple(chance.randint(max(1, longest // 4), longest) for _ in range(spec.workload.rows_per_update))
    blocks = 1 if wanted.short else wanted.blocks
    return Bench(wanted.out.resolve(), spec, settings, chosen, lengths, blocks, wanted.in_turns, wanted.bare)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("model", help="model folder")
    made.add_argument("--out", required=True, type=Path, help="folder of this run; the same one goes on with it")
    made.add_argument("--short", action="store_true", help="three configurations, one block of each mode, two cycles")
    made.add_argument("--slice-s", type=float, default=540.0, help="seconds of this call (540)")
    made.add_argument("--blocks", type=int, default=3, help="of each mode (3)")
    made.add_argument("--in-turns", action="store_true", help="each configuration cold and warm next to each other")
    made.add_argument("--bare", action="store_true", help="also with empty caches; compiled vLLM is on the list too")
    made.add_argument("--rows", type=int, default=8, help="completions of an update (8)")
    made.add_argument("--completion", type=int, default=32, help="most tokens of a completion (32)")
    made.add_argument("--prompt", type=int, default=None, help="most tokens of a prompt (the task's)")
    made.add_argument(
        "--python",
        default=os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train" / "bin" / "python")),
        help="the training interpreter",
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """0: all is measured; 3: the same command goes on; 2: refused."""
    wanted, stop = parser().parse_args(arguments), Asked()
    stop.listen()
    try:
        wanted.out.mkdir(parents=True, exist_ok=True)
        bench = prepared(wanted)
        left = bench.go_on(wanted.slice_s, stop)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    page = bench.out / "overhead.md"
    print(page.read_text() if page.exists() else "nothing measured yet")
    print(f"{left} trials left; the same command goes on" if left else f"all measured: {page}", flush=True)
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
