"""Plain TRL and two trials of the same arguments, in processes that take turns in their reward."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune import wiring
from autotune.domain import Protocol, Study, StudySpec, Trial, TrialKind, TrialState
from autotune.errors import MachineError
from autotune.frameworks import framework_named
from autotune.machine.clock import SystemClock
from autotune.ports import Assignment
from autotune.running.launch import child_environment, environment
from autotune.settings import Settings
from autotune.specification.user_input import sha256_of
from benchmarks.gpu.run import Asked, Heard
from trainer.child.contract import TrialSpec

DEADLINE_S = 900.0
PLAIN, COLD, FORKED = "plain", "cold", "forked"
MODES = (PLAIN, COLD, FORKED)
WAIT_S = 240.0
"""Most seconds of a start or a turn."""
REWARD = '''"""Rewards like ``inputs.REWARD``; whoever comes here waits for its turn."""

import os, time

COME, GO, LOG = {come!r}, {go!r}, {log!r}


def score(prompts, completions, **columns):
    began = time.perf_counter()
    come, go = os.open(COME, os.O_RDWR), os.open(GO, os.O_RDWR)
    os.write(come, b"{letter}")
    os.read(go, 1)
    os.close(come)
    os.close(go)
    with open(LOG, "a") as log:
        log.write("%r\\n" % (time.perf_counter() - began))
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''


@dataclass(frozen=True)
class Bench:
    """What is trained."""

    out: Path
    spec: StudySpec
    settings: Settings
    cycles: int

    def study(self, mode: str, folder: Path) -> Study:
        """With the mode's own reward."""
        path = folder / mode / "reward.py"
        reward = replace(self.spec.workload.rewards[0], path=str(path), sha256=sha256_of(str(path)))
        spec = replace(self.spec, workload=replace(self.spec.workload, rewards=(reward,)))
        return Study(1, spec, created_at=0.0, lengths=self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """All completions have the most tokens."""
        return (self.spec.workload.max_completion_length,) * self.spec.workload.rows_per_update

    def assignment(self, mode: str, folder: Path) -> Assignment:
        """A trial of the baseline that repeats no cycle."""
        protocol = Protocol(
            warmup=1, natural=0, recorded=self.cycles - 1, maximum=0, lengths=self.lengths,
            outside_cpu_limit=9.0, max_repeats=0,
        )  # fmt: skip
        study = self.study(mode, folder)
        trial = Trial(
            1, MODES.index(mode), TrialKind.SEARCH, study.spec.baseline, protocol,
            study.spec.workload.rows_per_update, TrialState.RUNNING, attempt=1,
        )  # fmt: skip
        return Assignment(study, trial, folder / mode / "attempt", DEADLINE_S)


def metered(bench: Bench, mode: str, folder: Path) -> None:
    """A trial, in a process of its own; its cycles' seconds are written into the mode's folder."""
    found = bench.assignment(mode, folder)
    runner = wiring.runner_for(found.study.spec, bench.settings, SystemClock(), preload=mode == FORKED)
    heard = Heard()
    report = runner.run(found, heard, Asked())
    runner.close()
    if not report.outcome.ok or heard.notes:
        sys.exit("; ".join([report.outcome.sentence(), *heard.notes]))
    ordered = sorted(heard.cycles, key=lambda cycle: cycle.index)
    (folder / mode / "steps.json").write_text(json.dumps([cycle.seconds for cycle in ordered]))


def plain_settings(rendered: TrialSpec, cycles: int, reward: Path) -> dict[str, Any]:
    """What plain TRL is started with: the trial's own arguments, and what a user sets to make so many steps."""
    steps = {
        "max_completion_length": rendered.max_completion_length, "max_steps": cycles, "logging_steps": 1,
        "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "seed": rendered.seed, "use_cpu": True,
    }  # fmt: skip
    return {
        "model": rendered.model, "prompts": rendered.prompts, "reward": str(reward),
        "rows": cycles * rendered.rows_per_update // 2, "model_settings": dict(rendered.model_settings),
        "settings": {**rendered.settings, **steps},
    }  # fmt: skip


class Running:
    """One of the three."""

    def __init__(self, bench: Bench, mode: str, folder: Path) -> None:
        self.mode = mode
        self.folder = folder / mode
        self.ended: Callable[[], bool]
        self._tuner: int | None = None
        """Of a trial."""
        if mode == PLAIN:
            found = bench.assignment(mode, folder)
            rendered = framework_named(found.study.spec.framework).render(found)
            values = plain_settings(rendered, bench.cycles, self.folder / "reward.py")
            (self.folder / "plain.json").write_text(json.dumps(values))
            own = environment(rendered, found.study.spec.resources.cpu_cores, os.environ)
            with (self.folder / "log.txt").open("w") as log:
                plain = subprocess.Popen(
                    [bench.spec.python, str(Path(__file__).with_name("plain_steps.py")), str(self.folder)],
                    env={**child_environment(os.environ, "plain"), **own}, stdout=log, stderr=log, cwd=self.folder,
                    start_new_session=True,  # as a trial is: Linux shares processors out by session
                )  # fmt: skip
            self.ended, self.kill = lambda: plain.poll() is not None, plain.kill
        else:
            trial = multiprocessing.get_context("fork").Process(target=metered, args=(bench, mode, folder))
            trial.start()
            self._tuner = trial.pid
            self.ended, self.kill = lambda: not trial.is_alive(), trial.kill

    def send(self, number: signal.Signals) -> None:
        """To the tuner, if there is one."""
        if self._tuner is not None and not self.ended():
            os.kill(self._tuner, number)

    def net(self) -> list[float]:
        """Seconds of each cycle without its reward's. Raises ``MachineError``: it did not end well."""
        try:
            steps = json.loads((self.folder / "steps.json").read_text())
        except OSError:
            raise MachineError(f"{self.mode} did not end well; see {self.folder}") from None
        waits = [float(line) for line in (self.folder / "waits").read_text().split()]
        return [step - wait for step, wait in zip(steps, waits, strict=True)]


class Round:
    """Three processes that take turns."""

    def __init__(self, bench: Bench, folder: Path, order: Sequence[str]) -> None:
        self._bench, self._folder, self._order = bench, folder, order
        self._come = 0
        self._go: dict[str, int] = {}
        self._running: list[Running] = []

    def run(self) -> dict[str, list[float]]:
        """Seconds of each cycle by mode. Raises ``MachineError``: one of them did not end well."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        with self._pipes():
            try:
                for mode in self._order:
                    self._running.append(Running(self._bench, mode, self._folder))
                    self._until(self._running[-1])
                while left := [one for one in self._running if not one.ended()]:
                    for one in left:
                        self._turn(one)
                return {one.mode: one.net() for one in self._running}
            finally:
                self._end()

    @contextlib.contextmanager
    def _pipes(self) -> Iterator[None]:
        """Held open here, so that no word in them is lost."""
        come = self._folder / "come"
        os.mkfifo(come)
        self._come = os.open(come, os.O_RDWR)
        for mode in self._order:
            own = self._folder / mode
            own.mkdir()
            os.mkfifo(own / "go")
            self._go[mode] = os.open(own / "go", os.O_RDWR)
            paths = {"come": str(come), "go": str(own / "go"), "log": str(own / "waits")}
            (own / "reward.py").write_text(REWARD.format(letter=mode[0], **paths))
        try:
            yield
        finally:
            for handle in (self._come, *self._go.values()):
                os.close(handle)

    def _turn(self, one: Running) -> None:
        one.send(signal.SIGCONT)
        os.write(self._go[one.mode], b"x")
        self._until(one)

    def _until(self, one: Running) -> None:
        """It has come to its reward, and its tuner is stopped, or it has ended. Raises ``MachineError``: neither."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if select.select([self._come], [], [], 0.1)[0]:
                os.read(self._come, 1)
                one.send(signal.SIGSTOP)
                return
            if one.ended():
                return
        raise MachineError(f"{one.mode} neither made a cycle nor ended within {WAIT_S:.0f} s; see {one.folder}")

    def _end(self) -> None:
        left = [one for one in self._running if not one.ended()]
        for one in left:
            one.kill()
        if left:
            wiring.runner_for(self._bench.spec, self._bench.settings, SystemClock()).sweep(1)
