"""Runs a verl trial: ``python -m verl.trainer.main_ppo``, unchanged, with its own Ray, measured by its log.

An agent loop (``within/``), verl's own extension point, sets the completion lengths. One trial has run on a GPU.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Deque, Dict, List, Mapping, Optional, Sequence

from ... import contract
from ...checks import check_version
from ...failures import IllegalSettingError, MeterError, NotFiniteError, RewardFailedError
from ...journal import END, read_answer
from ...model_facts import model_folder
from ...trial import TrialContext
from ...user_environment import put_environment
from . import overrides
from .board import FileTally, NewLines, Places, read_failure
from .course import LIMITS, StepSequence

EXIT_S = 30.0
"""Seconds for Ray's shutdown after the last step."""
LAST_WORDS_S = 1.0
"""Seconds to read the rest of the output after verl's end; Ray's daemons may hold the output open."""
LINES = 2000
CHUNK = 1 << 16
"""Longest line, in characters; a longer one counts as several."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^(?:\([^()]*\bpid=[^()]*\)\s*)+")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt|Value)(?::|\(|$)")
_ECHO = re.compile(r"RayTaskError|ActorDiedError|WorkerCrashedError")
_PLACES = (
    (re.compile(r"update_actor|train_mini_batch"), contract.Phase.UPDATE),
    (re.compile(r"compute_(?:old_|ref_)?log_prob"), contract.Phase.LOGPROB),
    (re.compile(r"update_weights"), contract.Phase.SYNC),
    (re.compile(r"generate_sequences"), contract.Phase.GENERATE),
)
"""Pattern of verl's functions in a traceback -> phase."""


class VerlFailedError(Exception):
    """verl ended before the trial was done; the message has its exit status and the line with the cause."""


class Verl:
    """One run of ``python -m verl.trainer.main_ppo``; its output goes to the output of this process."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            list(argv),
            cwd=str(folder),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._child.stdout is not None  # noqa: S101  (narrowing; it is a pipe)
        self._output = io.TextIOWrapper(self._child.stdout, encoding="utf-8", errors="replace", newline="\n")
        self._lines: Deque[str] = deque(maxlen=LINES)
        self._listener = threading.Thread(target=self._listen, name="autotune-verl", daemon=True)
        self._listener.start()

    @property
    def status(self) -> Optional[int]:
        """Exit status, negative for a signal; ``None`` while verl runs."""
        return self._child.poll()

    def _listen(self) -> None:
        for line in iter(lambda: self._output.readline(CHUNK), ""):
            plain = _COLOUR.sub("", line).rstrip("\n")
            self._lines.append(plain.rpartition("\r")[2])
            with contextlib.suppress(OSError):
                sys.stdout.write(plain + "\n")
                sys.stdout.flush()

    def last_lines(self) -> str:
        """Returns the last lines of the output so far; after the end, waits for the complete output."""
        if self.status is not None:
            self._listener.join(LAST_WORDS_S)
        return "\n".join(list(self._lines))

    def wait(self, seconds: float) -> bool:
        """Waits at most ``seconds`` for the end; tells whether verl has ended."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Ends verl and its Ray, by a kill if needed; the tuner sweeps other processes that verl started."""
        if self.status is None:
            self._child.terminate()
            if not self.wait(5.0):
                self._child.kill()
                self._child.wait()
        self._listener.join(LAST_WORDS_S)


def failure(status: int, output: str) -> VerlFailedError:
    """Returns the exception for a run of verl that ended by itself."""
    if status < 0:
        # As launchers write it, so that the tuner asks the kernel whether this was for want of memory.
        ended = "verl was ended by a signal (exitcode: %d)" % status
    else:
        ended = "verl ended with exit code %d" % status
    line = telling(output)
    return VerlFailedError("%s: %s" % (ended, line) if line else "%s and told no reason" % ended)


def telling(output: str) -> str:
    """Returns the line with the cause, without Ray's prefix: a known error text, else the last exception."""
    reading = contract.read_log(output, contract.SIGNS)
    if reading is not None and reading.sign.nearness is contract.Nearness.CAUSE:
        return _PREFIX.sub("", reading.line)
    lines = [_PREFIX.sub("", line.strip()) for line in output.splitlines()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    own = [line for line in raised if not _ECHO.search(line)]
    return (own or raised or [""])[-1][:400]


def place(output: str) -> Optional[contract.Phase]:
    """Returns the phase of verl's function in the last traceback of the output; ``None`` without one."""
    traced = output.rpartition("Traceback (most recent call last)")
    if not traced[1]:
        return None
    found = [(match.start(), phase) for pattern, phase in _PLACES for match in pattern.finditer(traced[2])]
    return max(found)[1] if found else None


def make_sockets(folder: Path) -> None:
    """Makes Ray's socket folder, empty and accessible to this user alone.

    Raises OSError if another user has a folder of that name.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise
        shutil.rmtree(str(folder))
        folder.mkdir(mode=0o700)


PATIENCE_S = 120.0
"""Seconds after which a pending resource demand counts as unmet."""
TAIL_BYTES = 1 << 15
_STATUS = "Autoscaler status:"
_USE = re.compile(r"^ ([\d.]+)/([\d.]+) (\w+)", re.MULTILINE)
_ASKED = re.compile(r"'(\w+)': ([\d.]+)")


def unmet(log: str) -> str:
    """Returns the resource demands that Ray cannot meet, and its resources, by the last state in ``log``; else empty.

    Ray will soon meet a demand that free resources cover.
    """
    last = log.rpartition(_STATUS)
    usage, _, demands = last[2].partition("Pending Demands:")
    if not last[1] or not demands:
        return ""
    total = {name: float(whole) for _, whole, name in _USE.findall(usage)}
    free = {name: float(whole) - float(used) for used, whole, name in _USE.findall(usage)}
    lines = [(line, _ASKED.findall(line)) for line in demands.splitlines() if line.startswith(" {")]
    waiting = [line.strip() for line, own in lines if any(float(n) > free.get(name, 0.0) for name, n in own)]
    if not waiting:
        return ""
    there = " and ".join("%g %s" % (total.get(name, 0.0), name) for name in ("CPU", "GPU"))
    return "%s; Ray counts %s" % (", ".join(waiting), there)


@dataclass
class RayDemands:
    """Follows the demands for resources in the log of one Ray's monitor."""

    folder: Path
    """Ray's ``_temp_dir``."""
    _said: str = ""
    _since: float = 0.0
    _looked: float = float("-inf")

    def stuck(self, now: float) -> str:
        """Returns a clause about a demand that has been pending for over ``PATIENCE_S``; empty if there is none.

        ``now`` is in monotonic seconds.
        """
        if now - self._looked < 5.0:
            return ""
        self._looked = now
        said = unmet(self._log())
        if said != self._said:
            self._said, self._since = said, now
        return said if said and now - self._since >= PATIENCE_S else ""

    def _log(self) -> str:
        """Returns the last ``TAIL_BYTES`` of the monitor's log; empty without one."""
        try:
            with max(self.folder.glob("session_[0-9]*/logs/monitor.log")).open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
                return stream.read().decode("utf-8", "replace")
        except (OSError, ValueError):  # there is none yet
            return ""


SUPPORTED = ((0, 9, 1), (0, 10))
"""verl versions whose files and keys this package knows: from the first, below the second."""
LOOK_S = 0.02
PACKAGES = ("verl", "torch", "transformers", "vllm", "ray", "tensordict", "TransferQueue")
KNOWN_HERE = ("lengths", "zero_std_groups")
"""Keys of ``LIMITS`` that do not apply: a trial has these figures from its own agent loop and reward."""
OF_TRIALS: Dict[str, str] = {
    "load": "verl does not tell its imports, Ray, loading, the engine and its capture apart: all of it is under load",
    "first_batch": "there is none apart: the warm-up is verl's first step",
    "drift": "no reference kernel runs between two steps, because verl goes on; outside CPU time is looked at",
    "warmup": "every row of the warm-up is of maximum length, because verl deals rows to micro-batches itself",
    "phase": "where verl is while a step runs is known only until the last completion of it is there; then it is idle",
}


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is completed. Raises the error of a failure (``failures.classify``)."""
    spec, paths = trial.spec, trial.paths
    sockets = paths.sockets  # before the user's own variables may say another folder for temporary files
    put_environment(spec.passthrough)
    trial.facts["versions"] = versions()
    check_version("verl", trial.facts["versions"].get("verl", ""), SUPPORTED)
    overrides.check(spec)
    places = Places(paths.root)
    course = StepSequence(spec, places, FileTally(places))
    course.begin()
    limits = {name: text for name, text in LIMITS.items() if name not in KNOWN_HERE}
    trial.journal.write(contract.NoteRecord("verl_figures", {**limits, **OF_TRIALS}))
    model = str(model_folder(spec.model, spec.revision or None, offline=True))
    words = overrides.words(spec, paths, model, len(course.kinds))
    trial.journal.write(contract.NoteRecord("arguments", {"argv": words}))
    make_sockets(sockets)
    try:
        _measure(trial, course, [sys.executable, "-m", overrides.MODULE, *words])
    finally:
        shutil.rmtree(str(sockets), ignore_errors=True)


def _measure(trial: TrialContext, course: StepSequence, argv: List[str]) -> None:
    """Runs verl until it ends or the last required cycle is measured."""
    trial.part = contract.StartupPart.LOAD
    trial.journal.mark(contract.StartupPart.LOAD.value)
    torch = trial.facts["versions"].get("torch", "")
    verl = Verl(argv, trial.paths.scratch, overrides.environment(trial.paths, os.environ, torch))
    watch = VerlFollower(trial, course, verl)
    try:
        while not watch.is_over():
            time.sleep(LOOK_S)
        if course.finished and not verl.wait(EXIT_S):
            trial.journal.write(contract.NoteRecord("verl_lingered", {"seconds": EXIT_S}))
    finally:
        verl.end()


class VerlFollower:
    """Follows verl's progress by the files that verl and the trial's code in it write."""

    def __init__(self, trial: TrialContext, course: StepSequence, verl: Verl) -> None:
        self._trial = trial
        self._course = course
        self._verl = verl
        self._log = NewLines(course.places.log)
        self._began = time.perf_counter()
        self._demands = RayDemands(trial.paths.sockets / "ray")

    def is_over(self) -> bool:
        """Reads verl's files once; tells whether the trial is over.

        Raises:
            VerlFailedError: verl ended before its last step.
            RewardFailedError, NotFiniteError, MeterError, MetricsError: its figures would be wrong.
        """
        status = self._verl.status  # before the look, so that nothing written until then is missed
        self._look()
        if self._course.finished or self._is_enough():
            return True
        if status is None:
            self._check_demands()
            return False
        said = self._verl.last_lines()
        if (phase := place(said)) is not None and self._trial.part is None:
            self._mark(phase)
        if status == 0:
            made = (self._course.done, len(self._course.kinds))
            raise MeterError("verl ended after %d of %d steps" % made)
        error = failure(status, said)
        sys.stdout.write("autotune: %s\n" % error)
        raise error

    def _look(self) -> None:
        failure = read_failure(self._course.places)
        if failure is not None and failure.reason == contract.FailureReason.NAN.value:
            raise NotFiniteError(failure.message, contract.Phase.REWARD)
        if failure is not None:
            raise RewardFailedError(failure.message)
        if self._trial.part is not None and self._course.places.log.exists():
            self._started()
        news = self._course.tally.look()
        lines = self._log.take()
        for line in lines:
            for record in self._course.line(line):
                self._trial.journal.write(record)
        if self._trial.part is None and not self._course.finished and (news or lines):
            self._mark(contract.Phase.IDLE if self._course.generated else contract.Phase.GENERATE)

    def _check_demands(self) -> None:
        """Raises ``IllegalSettingError`` if verl waits for resources that Ray lacks: its start would never end."""
        waited = self._demands.stuck(time.monotonic()) if self._trial.part is not None else ""
        if waited:
            raise IllegalSettingError(
                "verl has waited %.0f s for what Ray does not have: %s; raise ray_kwargs.ray_init.num_cpus, or train "
                "on fewer GPUs" % (PATIENCE_S, waited)
            )

    def _started(self) -> None:
        """Ends the start-up: verl creates its log after everything is built."""
        self._trial.part = None
        self._trial.journal.write(contract.StartupRecord(contract.StartupPart.LOAD, time.perf_counter() - self._began))
        self._mark(contract.Phase.GENERATE)

    def _mark(self, phase: contract.Phase) -> None:
        """Writes the current phase, even if unchanged, as a heartbeat."""
        self._trial.journal.mark(phase.value, self._course.done, self._course.kind.value)

    def _is_enough(self) -> bool:
        """Tells whether the parent has ended the recorded cycles; verl continues without waiting for the decision."""
        if not self._trial.spec.protocol.looks or (read_answer(self._trial.paths) or (-1, ""))[1] != END:
            return False
        kinds = self._course.kinds[: self._course.done]
        self._trial.facts["ended_after"] = sum(1 for kind in kinds if kind is contract.CycleKind.RECORDED)
        return True


def versions() -> Dict[str, str]:
    """Returns the versions of the installed packages that affect the figures."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
