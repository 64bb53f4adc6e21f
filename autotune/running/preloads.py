"""Starts, keeps and ends the preloaded processes of a tuner."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.machine.lanes import CPUS_VARIABLE
from autotune.ports import StopToken
from autotune.running.launch import child_environment
from autotune.running.log import CappedLog, LogPump
from autotune.running.preloaded import Forked, Preload, PreloadError, environment_key
from autotune.running.process_tree import Child
from autotune.running.spawn import Spawn, spawn
from trainer.child.contract import write_atomic

COMMANDS = ("trial", "worker")
MOST, MANY = 2, 4
"""Most preloaded processes at a time: with and without vLLM; with ``ROOM``, also another allocator or a compiler."""
ROOM = 16 << 30
"""Bytes of the machine's memory from which ``MANY`` applies: one process takes 0.5 GiB, 0.7 with vLLM (PSS, measured;
decision 24)."""


@dataclass(frozen=True)
class PreloadTimeouts:
    """Time limits of requests to a preloaded process, in seconds."""

    ready_s: float = 180.0
    """Limit of the imports, as long as they may take in a trial."""
    answer_s: float = 10.0
    """Limit of a fork."""
    look_s: float = 0.05


def most_alive(memory: int | None) -> int:
    """Returns the most preloaded processes on a machine with ``memory`` bytes; ``None``: unknown."""
    return MANY if memory is not None and memory >= ROOM else MOST


class Preloads:
    """Replacement for ``spawn.spawn`` that forks from preloaded processes. Used by one thread at a time."""

    def __init__(
        self, patience: PreloadTimeouts | None = None, most: int = MOST, tries: int = 3, refusals: Path | None = None
    ) -> None:
        """Takes ``tries``: preloaded processes that may fail before no more is started; and ``refusals``: the file in
        which tuners of the same software keep which imports cannot be shared."""
        self._patience = patience or PreloadTimeouts()
        self._most = most
        self._left = tries
        self._alive: list[Preload] = []
        """Preloaded processes, the last used one last."""
        self._notes: list[str] = []
        self._refusals = refusals
        self._unfit = {} if refusals is None else _refused(refusals)
        """Reasons why imports cannot be shared, by ``kind_of`` them."""
        self._finalizer = weakref.finalize(self, _end_all, self._alive)

    def close(self) -> None:
        """Ends all preloaded processes; a later trial starts one again."""
        _end_all(self._alive)

    def take_notes(self) -> tuple[str, ...]:
        """Returns and clears the reasons why trials were started instead of forked."""
        notes, self._notes = tuple(self._notes), []
        return notes

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the living preloaded processes."""
        return tuple(preload.pid for preload in self._alive if preload.alive)

    def starter(self, stop: StopToken) -> Spawn:
        """Returns ``spawn`` with a stop token, on which it ends its wait for imports."""
        return functools.partial(self.spawn, stop=stop)

    def spawn(
        self,
        argv: Sequence[str],
        cwd: Path,
        tag: str,
        log: CappedLog,
        environment: Mapping[str, str],
        stop: StopToken | None = None,
    ) -> tuple[Child, LogPump]:
        """Starts a process as ``spawn.spawn`` does, but forks it where the result is the same.

        Args:
            stop: level 2 ends the wait for imports; the process is then started the ordinary way.
        """
        asked = time.monotonic()
        try:
            if (forked := self._forked(argv, cwd, tag, log, environment, stop, asked)) is not None:
                return forked
        except (PreloadError, OSError) as error:
            why = f"not forked from a preloaded process, but started: {error}"
            self._notes.append(why)
            log.write(f"autotune: {why}\n".encode())
        if not environment.get("CUDA_VISIBLE_DEVICES"):
            self.close()  # its mapped files count against the host memory that the trial has
        return spawn(argv, cwd, tag, log, environment)

    def _forked(
        self,
        argv: Sequence[str],
        cwd: Path,
        tag: str,
        log: CappedLog,
        environment: Mapping[str, str],
        stop: StopToken | None,
        since: float,
    ) -> tuple[Child, LogPump] | None:
        if len(argv) != 5 or argv[2] not in COMMANDS or argv[3] != "--directory":
            return None
        whole = {**child_environment(os.environ, tag), **environment}
        request = {"command": argv[2], "directory": argv[4], "cwd": str(cwd), "tag": tag, "asked": since}
        key = environment_key(argv[0], argv[1], whole)
        for preload in [p for p in reversed(self._alive) if p.key == key]:
            if (child := self._fork(preload, request, log)) is not None:
                return child
        if self._left <= 0:
            return None
        first = self._started(argv, whole, tag, stop)
        if first is None:
            return None
        child = self._fork(first, request, log)
        if child is None:
            self._left -= 1
            self._drop(first)
            raise PreloadError("the preloaded process refused the trial it was started for")
        return child

    def _started(
        self, argv: Sequence[str], environment: Mapping[str, str], tag: str, stop: StopToken | None
    ) -> Preload | None:
        """Returns a new, ready preloaded process; ``None`` if the user stops. Raises ``PreloadError``, ``OSError``."""
        self._make_room()
        preload = Preload(argv[0], argv[1], argv[4], environment, preload_tag(tag))
        self._alive.append(preload)
        try:
            kind, answer = self._answered(preload, stop)
        except PreloadError:
            self._left -= 1
            self._drop(preload)
            raise
        if answer is not None and "ready" in answer:
            return preload
        self._drop(preload)
        if answer is None:
            return None
        why = str(answer.get("unfit", answer))
        if kind not in self._unfit or not kind:
            self._left -= 1
            self._unfit[kind] = why
            with contextlib.suppress(OSError):
                if self._refusals is not None:
                    write_atomic(self._refusals, json.dumps(self._unfit))
        raise PreloadError(f"the imports cannot be shared: {why}")

    def _answered(self, preload: Preload, stop: StopToken | None) -> tuple[str, Mapping[str, object] | None]:
        """Returns the kind of the imports and the process's answer after them; no answer if the user stops meanwhile.

        Refuses at once a kind that was unfit before: imports take long. Raises ``PreloadError``.
        """
        left, kind = self._patience.ready_s, ""
        while True:
            answer = preload.answer(self._patience.look_s)
            if answer is not None and "begins" not in answer:
                return kind, answer
            if answer is not None:
                kind = kind_of(preload.key, answer["begins"])
                if kind in self._unfit:
                    return kind, {"unfit": self._unfit[kind]}
                continue
            if stop is not None and stop.level >= 2:
                return kind, None
            left -= self._patience.look_s
            if left <= 0:
                raise PreloadError(f"the preloaded process was not ready after {self._patience.ready_s:.0f} s")

    def _fork(self, preload: Preload, request: Mapping[str, object], log: CappedLog) -> tuple[Child, LogPump] | None:
        """Returns the forked process; ``None`` if it is refused. Raises ``OSError`` and ``PreloadError``."""
        output, input_ = os.pipe()
        go_out, go_in = os.pipe()
        others = [p for p in self._alive if p is not preload and p.alive]
        try:
            preload.ask({"fork": {**request, "others": [p.pid for p in others]}}, (input_, go_out))
            answer = preload.answer(self._patience.answer_s)
            if answer is None:
                raise PreloadError(f"the preloaded process did not answer within {self._patience.answer_s:.0f} s")
            if "pid" not in answer:
                os.close(output)
                return None
            child = Forked(preload, int(answer["pid"]), others)
            os.write(go_in, b"x")
        except (PreloadError, OSError) as error:
            os.close(output)
            self._left -= 1
            self._drop(preload)
            raise PreloadError(str(error)) from error
        finally:
            for handle in (input_, go_out, go_in):
                os.close(handle)
        self._alive.sort(key=lambda p: p is preload)
        pump = LogPump(output, log)
        pump.start()
        return child, pump

    def _make_room(self) -> None:
        for preload in [p for p in self._alive if not p.alive]:
            self._drop(preload)
        while len(self._alive) >= self._most:
            preload = self._alive.pop(0)
            preload.end()

    def _drop(self, preload: Preload) -> None:
        preload.kill()
        if preload in self._alive:
            self._alive.remove(preload)


def preload_tag(tag: str) -> str:
    """Returns the tag of the preloaded process for trials with tags like ``tag``; a sweep of the study finds it too."""
    return f"{tag.rsplit(':', 2)[0]}:preload"


def kind_of(process: tuple[Any, ...], imports: object) -> str:
    """Returns a short name of a process's imports, by its ``environment_key``, that is the same in every place."""
    *program, variables = process
    own = [pair for pair in variables if pair[0] not in (CPUS_VARIABLE, "CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(repr((program, own, imports)).encode()).hexdigest()[:16]


def _refused(file: Path) -> dict[str, str]:
    """Returns the refusals of other tuners in the last day, as some are made by chance."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        if time.time() - file.stat().st_mtime < 86_400:
            return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}


def _end_all(alive: list[Preload]) -> None:
    while alive:
        alive.pop().end()
