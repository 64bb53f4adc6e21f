"""Runs real TRL trials of a tiny model for the tests, in the training interpreter."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import Workload
from autotune.running.log import CappedLog
from autotune.running.preloaded import Preloads
from tests.support import factories
from tests.support.shared import made_once
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    NoteRecord,
    Protocol,
    Record,
    Result,
    RewardSpec,
    RunPaths,
    TrialSpec,
    WorstCaseRecord,
    dumps,
    iter_complete_lines,
    parse_record,
    read_result,
    write_atomic,
)
from trainer.frameworks import trl
from trainer.frameworks.common.values import TrialArguments

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "trainer" / "child" / "start.py"
OBSERVED = ROOT / "tests" / "support" / "observed_trial.py"
LENGTHS = (3, 16, 7, 9, 16, 2, 5, 11, 16, 1, 8, 4, 12, 16, 6, 10)
QUIET = Protocol(warmup=1, natural=0, recorded=2, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0)
"""Never repeats a cycle, however busy the machine that runs the tests is."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Of so small a model, threads only wait for each other, and on a busy machine for long."""


TRAINING_VARIABLE = "AUTOTUNE_TEST_PYTHON"
NO_TRAINING = "/no-training-interpreter-in-the-unit-lane"
"""What a test of the unit lane finds in the variable."""


def training_python() -> str:
    """The training interpreter. Fails the test, with what to do, if there is none, or if it is of the unit lane."""
    python = os.environ.get(TRAINING_VARIABLE, str(ROOT / ".venv-train" / "bin" / "python"))
    if python == NO_TRAINING:
        raise AssertionError("a test of the unit lane asked for the training interpreter: mark it `trl`")
    if not Path(python).exists():
        raise AssertionError(
            f"no training interpreter at {python}: run `make test`, or set AUTOTUNE_TEST_PYTHON to one with TRL"
        )
    return python


def build_tiny(folder: Path, *size: int, python: str = "") -> Path:
    """A tiny random model and prompts in ``folder``; ``size`` is another hidden size and number of layers.

    ``python`` makes them instead of the training interpreter.
    """
    python = python or training_python()
    name = f"tiny-{hashlib.sha256(repr((python, size)).encode()).hexdigest()[:8]}"
    # Once for all tests, because importing torch takes longest.
    built = made_once(name, lambda at: run_builder(python, ROOT / "tests" / "support" / "tiny_model.py", at, *size))
    shutil.copytree(built, folder, dirs_exist_ok=True)
    return folder


def run_builder(python: str, script: Path, folder: Path, *words: object) -> None:
    """Let an interpreter run a script that builds something in ``folder``."""
    command = [python, str(script), str(folder), *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def reward_file(folder: Path, body: str) -> RewardSpec:
    """A reward in a file of its own; ``body`` is the function's body."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reward.py"
    path.write_text(f"import math, time\n\ndef reward(prompts, completions, **columns):\n    {body}\n")
    return RewardSpec("file", "reward", str(path))


PLAIN = "return [float(len(c) % 3) for c in completions]"


def told_of(tiny: Path, reward: RewardSpec | tuple[RewardSpec, ...], protocol: Protocol) -> TrialArguments:
    """A trial of what ``build_tiny`` made: 16 rows per update, 16-token completions."""
    return {
        "trial": "1/0",
        "model": str(tiny / "model"),
        "prompts": str(tiny / "prompts.jsonl"),
        "rewards": reward if isinstance(reward, tuple) else (reward,),
        "rows_per_update": 16,
        "max_prompt_length": 48,
        "max_completion_length": 16,
        "protocol": protocol,
    }


def tiny_workload(tiny: Path, reward: RewardSpec, **passthrough: Any) -> Workload:
    """The workload of a study of the tiny model, with what ``told_of`` tells."""
    told = {**told_of(tiny, reward, QUIET), "passthrough": passthrough}
    return factories.workload(**{name: value for name, value in told.items() if name not in ("trial", "protocol")})


def tiny_spec(
    tiny: Path, reward: RewardSpec | tuple[RewardSpec, ...], protocol: Protocol = QUIET, **changes: Any
) -> TrialSpec:
    """``told_of``; ``knobs`` change the configuration, the rest the spec."""
    knobs = {
        "micro_batch_size": 4,
        "num_generations": 4,
        "gradient_checkpointing": False,
        "precision": "fp32",
        **changes.pop("knobs", {}),
    }
    passthrough = changes.pop("passthrough", {})
    spec = trl.render(configuration=knobs, passthrough=passthrough, **told_of(tiny, reward, protocol))
    return replace(spec, **changes)


def write_spec(directory: Path, spec: TrialSpec) -> RunPaths:
    paths = RunPaths(directory)
    write_atomic(paths.config, dumps(spec))
    paths.scratch.mkdir(parents=True, exist_ok=True)
    return paths


def hidden(directory: Path) -> dict[str, str]:
    """What hides every GPU from a trial on the CPU, as the tuner does; nothing for another."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(RunPaths(directory).config.read_text()).get("device") == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ""}
    return {}


def environment() -> dict[str, str]:
    """What a child is started with."""
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **ONE_THREAD}


def launch(script: Path, directories: list[Path], cwd: Path) -> subprocess.Popen[bytes]:
    """Start a child; its output goes to the first directory's log."""
    arguments = ["trial", "--directory", str(directories[0])] if script == START else list(map(str, directories))
    with RunPaths(directories[0]).log.open("wb") as log:
        return subprocess.Popen(
            [training_python(), str(script), *arguments],
            cwd=cwd,
            stdout=log,
            stderr=log,
            env=environment() | hidden(directories[0]),
        )


def end(process: subprocess.Popen[bytes], seconds: float = 240) -> int:
    """Wait for a child; one that does not end in time is killed and the test fails."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


class Ran:
    """What a finished trial left behind."""

    def __init__(self, directory: Path) -> None:
        self.paths = RunPaths(directory)
        self.result: Result = read_result(self.paths.result)
        data = self.paths.metrics.read_bytes() if self.paths.metrics.exists() else b""
        self.records: list[Record] = [parse_record(line) for line in iter_complete_lines(data)]

    @property
    def cycles(self) -> list[CycleRecord]:
        return [record for record in self.records if isinstance(record, CycleRecord)]

    def of(self, kind: CycleKind) -> list[CycleRecord]:
        return [cycle for cycle in self.cycles if cycle.cycle_kind is kind]

    @property
    def worst_case(self) -> WorstCaseRecord | None:
        return next((record for record in self.records if isinstance(record, WorstCaseRecord)), None)

    def note(self, name: str) -> NoteRecord:
        return next(record for record in self.records if isinstance(record, NoteRecord) and record.name == name)

    def spans(self) -> list[dict[str, Any]]:
        """What the separate observer saw (``observed_trial.py``)."""
        return [json.loads(line) for line in (self.paths.root / "spans.jsonl").read_text().splitlines()]


def within(spans: list[dict[str, Any]], cycle: CycleRecord, label: str) -> list[dict[str, Any]]:
    """Those of ``Ran.spans`` with this label that began in the cycle."""
    end = cycle.started + cycle.seconds + 0.005
    return [s for s in spans if s["label"] == label and cycle.started - 0.005 <= s["started"] <= end]


def run_child(words: list[str], directory: Path, spec: TrialSpec, environment: dict[str, str]) -> tuple[Ran, int]:
    """One trial by the words of an interpreter to its end: what it left, and its exit status."""
    paths = write_spec(directory, spec)
    with paths.log.open("wb") as log:
        process = subprocess.Popen(
            [*words, str(START), "trial", "--directory", str(directory)],
            cwd=paths.scratch,
            stdout=log,
            stderr=log,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                **hidden(directory),
                **environment,
            },
        )
    status = end(process)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    return Ran(directory), status


def run_trial(
    directory: Path, spec: TrialSpec, cwd: Path | None = None, script: Path = START, preloads: Preloads | None = None
) -> Ran:
    """One trial in a process of its own, to its end.

    Args:
        preloads: forks it, as a study does, instead of starting it: the trials of a test module import once.
    """
    paths = write_spec(directory, spec)
    status = end(launch(script, [directory], cwd or paths.scratch)) if preloads is None else _forked(preloads, paths)
    assert paths.result.exists(), paths.log.read_text()[-3000:]
    ran = Ran(directory)
    assert (status == 0) == ran.result.ok
    return ran


def _forked(preloads: Preloads, paths: RunPaths, seconds: float = 240) -> int:
    """The exit code of ``paths``' trial, forked; one that does not end in time is killed and the test fails."""
    argv = (training_python(), str(START), "trial", "--directory", str(paths.root))
    tag = f"autotune:tests-{os.getpid()}:1:0:1"
    log = CappedLog(paths.log)
    child, pump = preloads.spawn(argv, paths.scratch, tag, log, ONE_THREAD | hidden(paths.root))
    assert preloads.take_notes() == ()
    last = time.monotonic() + seconds
    while (code := child.poll()) is None:
        if time.monotonic() > last:
            os.kill(child.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(argv, seconds)
        time.sleep(0.02)
    pump.finish()
    return code
