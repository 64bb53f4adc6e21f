"""Random faults at random moments of scripted studies, and what must hold after each.

    python -m tests.campaign --minutes 10 [--seed 1]

A study is run, disturbed and run again until it is done. Every run of the tuner meets one fault. The seed decides
the studies, the faults and the moments; a line for each study repeats it. Exit code 1: something did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from autotune.cli import exit_codes
from autotune.domain import StudyStatus, TrialState
from autotune.running.proc import catches
from tests.e2e.commands import stored_cycles, written_cycles
from tests.e2e.studies import Tuner
from tests.support.waiting import wait_for
from trainer.child.contract import RunPaths

SLOW_S = 0.1
"""Of a cycle, so that most moments meet a trial."""
LATEST_S = 4.0
"""A fault comes at most so long after the study is there."""
LOCKED_S = 3.0
RUNS = 8
"""A study that was disturbed so often is left in peace."""

Fault = Callable[[Tuner, "subprocess.Popen[str]"], None]


def _kill(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)


def _notice(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def _slurm_notice(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    """All processes are told, the trial's first."""
    for pid in (*tuner.tagged(), process.pid):
        _send(pid, signal.SIGTERM)


def _interrupt(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)


def _lock(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    """Another process writes to the database for a while."""
    with closing(sqlite3.connect(tuner.home / "autotune.sqlite", isolation_level=None, timeout=30.0)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_S)
        other.execute("ROLLBACK")


def _freeze(tuner: Tuner, process: subprocess.Popen[str]) -> None:
    """The tuner is stopped for a moment, as a machine that is moved."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    process.send_signal(signal.SIGCONT)


FAULTS: dict[str, Fault] = {
    "kill": _kill,
    "notice": _notice,
    "notice to all": _slurm_notice,
    "Ctrl-C twice": _interrupt,
    "locked database": _lock,
    "frozen": _freeze,
}


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def left_over(tuner: Tuner) -> list[str]:
    """Folders outside the home that attempts left."""
    sockets = (RunPaths(path.resolve()).sockets for path in tuner.home.glob("runs/*/*/*") if path.is_dir())
    return [str(path) for path in sockets if path.exists()]


def held(tuner: Tuner, fault: str, code: int) -> list[str]:
    """What does not hold after one run of the tuner, as sentences."""
    wrong = []
    if fault != "kill":
        wrong += [f"process {pid} is left" for pid in tuner.tagged()]
        wrong += [f"{path} is left" for path in left_over(tuner)]
    allowed = {"kill": {-9}, "notice": {exit_codes.RUN_AGAIN}}
    if code not in allowed.get(fault.removesuffix(" to all"), set()) | {0}:
        wrong.append(f"the exit code is {code}")
    _, trials = tuner.study()
    store = tuner.store()
    events = store.events(1, limit=100_000)
    store.close()
    for trial in trials:
        told = Counter(event.kind for event in events if event.trial == trial.number)
        if told["trial_started"] != trial.attempt:
            wrong.append(f"trial {trial.number} has {trial.attempt} attempts, and {told['trial_started']} were told")
        if told["trial_finished"] != int(trial.state.is_finished):
            wrong.append(f"trial {trial.number} is {trial.state}, and {told['trial_finished']} ends were told")
        if trial.state is TrialState.RUNNING and fault != "kill":
            wrong.append(f"trial {trial.number} is RUNNING, and nobody runs it")
        if trial.state is TrialState.COMPLETE and (
            stored_cycles(tuner.home, trial.number, trial.attempt)
            < written_cycles(tuner.home, trial.number, trial.attempt)
        ):
            wrong.append(f"trial {trial.number} has cycles that are not stored")
    return wrong


def _listens(process: subprocess.Popen[str]) -> bool:
    """Before, a signal ends it as it ends any program."""
    return process.poll() is not None or catches(process.pid, signal.SIGUSR1)


def _order(tuner: Tuner) -> list[tuple[int, str, str]]:
    return [(t.number, str(t.kind), t.configuration.key) for t in tuner.study()[1]]


def study(rng: random.Random, folder: Path, met: Counter[str]) -> list[str]:
    """One study from its beginning to its end, disturbed; what did not hold."""
    plan = {"max_trials": rng.randint(2, 6), "warm": rng.random() < 0.5}
    tuner = Tuner(folder / "disturbed", **plan, script={"sleep": SLOW_S})
    wrong: list[str] = []
    for _ in range(RUNS):
        fault = rng.choice(list(FAULTS))
        moment = rng.uniform(0.0, LATEST_S)
        process = tuner.start()
        wait_for(lambda p=process: _listens(p), "a tuner that listens")  # type: ignore[misc]
        time.sleep(moment)
        if process.poll() is None:
            FAULTS[fault](tuner, process)
            met[fault] += 1
        process.communicate(timeout=240)
        wrong += [f"{fault} at {moment:.2f} s: {sentence}" for sentence in held(tuner, fault, process.returncode)]
        if tuner.study()[0].status is StudyStatus.DONE:
            break
    if tuner.study()[0].status is not StudyStatus.DONE:
        tuner.finish()
    whole = Tuner(folder / "undisturbed", **plan, script={})
    whole.finish()
    if _order(tuner) != _order(whole):
        wrong.append("its trials are not those of an undisturbed study")
    store = tuner.store()
    if store.recommendation(1) is None:
        wrong.append("it ended without an answer")
    store.close()
    return wrong


def campaign(minutes: float, seed: int) -> int:
    """The exit code."""
    until, met, studies, violated = time.monotonic() + 60.0 * minutes, Counter[str](), 0, 0
    while studies == 0 or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
            wrong = study(random.Random(f"{seed}/{studies}"), Path(folder), met)
        print(f"study {studies} of seed {seed}: {'; '.join(wrong) or 'all holds'}", flush=True)
        studies, violated = studies + 1, violated + len(wrong)
    faults = ", ".join(f"{name} {count}" for name, count in sorted(met.items()))
    print(f"{studies} studies, {met.total()} faults ({faults}), {violated} violated invariants, seed {seed}")
    return int(violated > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(campaign(given.minutes, given.seed))
