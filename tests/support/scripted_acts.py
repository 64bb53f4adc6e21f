"""The misbehaviours a script can ask a scripted child for; each is ``act_<name>`` and takes its own arguments."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from tests.support.scripted_model import MIB
from trainer.child.contract import FailureReason, Result, decode, dumps, write_atomic

if TYPE_CHECKING:
    from tests.support.scripted_child import ScriptedTrial


class Ended(Exception):  # noqa: N818 - not an error
    """The trial ends here with this result."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.result = result


def act_result(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """End with the given ``result`` (``ok``, ``reason``, ``phase``, ``pool``, ``message``, ``detail``)."""
    raise Ended(decode(Result, {"ok": False, **act["result"]}))


def act_used(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """End with the given ``result`` if this process has run another trial before."""
    if trial.before:
        act_result(trial, act)


def act_crash(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """An exception nobody catches; no result."""
    raise RuntimeError(act.get("message", "scripted crash"))


def act_exit(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Silently, with exit ``code``."""
    os._exit(int(act.get("code", 0)))


def act_signal(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Signal itself: ``number``."""
    os.kill(os.getpid(), int(act["number"]))


def act_print(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """``text`` to stderr."""
    sys.stderr.write(act["text"])


def act_sleep(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """For ``seconds`` (default: for ever), idle."""
    time.sleep(float(act.get("seconds", 3600)))


def act_spin(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """For ever, busy."""
    while True:
        math.sqrt(2.0)


def act_stop(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """SIGSTOP: neither runs nor hears signals."""
    os.kill(os.getpid(), signal.SIGSTOP)


def act_ignore_sigterm(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """From here on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def act_report_on_sigterm(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Write an OK result when stopped, and go on."""
    signal.signal(signal.SIGTERM, lambda *_: write_atomic(trial.paths.result, dumps(Result(True))))


def act_stacks(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Write all stacks to stderr on SIGUSR1, as the real child does."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def act_spawn(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """``count`` grandchildren that live until they are killed: ``how`` = plain | session | double_fork | untagged.

    Each really takes ``bytes`` of memory (default 0), and ignores SIGTERM; ``name`` is what it calls itself. Their
    process ids are appended to ``pids`` in the trial's directory.
    """
    for _ in range(int(act.get("count", 1))):
        if os.fork() == 0:
            _grandchild(trial, act.get("how", "session"), int(act.get("bytes", 0)), act.get("name"))
    wanted = int(act.get("count", 1))
    pids = trial.paths.root / "pids"
    while not pids.exists() or len(pids.read_text().split()) < wanted:
        time.sleep(0.005)


def _grandchild(trial: ScriptedTrial, how: str, size: int, name: str | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if name is not None:
        with open("/proc/self/comm", "w") as own:
            own.write(name)
    if how in ("session", "double_fork"):
        os.setsid()
    if how == "double_fork" and os.fork() != 0:
        os._exit(0)
    with open(trial.paths.root / "pids", "a") as stream:
        stream.write(f"{os.getpid()}\n")
    if how == "untagged":
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})  # noqa: S606
    trial.kept.append(bytearray(os.urandom(4096) * (size // 4096)))
    time.sleep(600)
    os._exit(0)


def act_raw(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """``text`` (Latin-1) into metrics.jsonl, as it is, ``times`` times."""
    for _ in range(int(act.get("times", 1))):
        trial.metrics.write(act["text"].encode("latin-1"))


def act_flood(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """``bytes`` of lines to stdout."""
    line = b"x" * 1023 + b"\n"
    for _ in range(int(act["bytes"]) // 1024):
        os.write(1, line)


def act_allocate(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Really take ``bytes`` of memory, ``step`` at a time, and keep them."""
    step = int(act.get("step", 16 * MIB))
    for _ in range(int(act["bytes"]) // step):
        trial.kept.append(bytearray(os.urandom(4096) * (step // 4096)))
        time.sleep(float(act.get("pause", 0.0)))


def act_ask(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """The rollout server at ``path``: fails as a client does if it does not answer."""
    url = f"{trial.spec.settings['server']}{act.get('path', '/health')}"
    data = json.dumps(act["body"]).encode() if "body" in act else None
    try:
        with urllib.request.urlopen(url, data, timeout=5) as answer:  # noqa: S310 - the loopback's
            answer.read()
    except (OSError, HTTPException) as error:
        time.sleep(float(act.get("slow", 0.0)))
        raise Ended(Result(False, FailureReason.CRASH, message=f"{type(error).__name__}: {error}")) from error


def act_environment(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """Ends the trial unless the variable ``name`` is ``value``."""
    if os.environ.get(act["name"]) != act["value"]:
        raise Ended(Result(False, FailureReason.CRASH, message=f"{act['name']} is {os.environ.get(act['name'])}"))


def act_write_environment(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """The variable ``name`` into the file called ``file`` of the trial's directory."""
    (trial.paths.root / act["file"]).write_text(os.environ.get(act["name"], ""))


def act_write(trial: ScriptedTrial, act: Mapping[str, Any]) -> None:
    """``text`` into the file called ``name`` of the trial's directory."""
    (trial.paths.root / act["name"]).write_text(act["text"])


ACTS = {name[len("act_") :]: function for name, function in list(globals().items()) if name.startswith("act_")}
