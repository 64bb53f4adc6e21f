"""Warm worker: runs the trials of its mailbox one after the other, and cleans up between them.

It continues only after a trial that ended OK, because a failure may leave state that disturbs measurements. It ends as
soon as its parent process is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .contract import ContractError, Letter, Mailbox, Result, RunPaths, TrialSpec, WorkerReply, read_spec
from .memory import tree_pss
from .worker import ResultClaim, answer_sigterm, framework_of, run

LOOK_S = 0.02
"""Seconds between two checks for a letter."""
PACKAGE = __name__.rpartition(".")[0]


def main(directory: Path) -> Result:
    """Serves the mailbox ``directory`` until a trial fails or the parent is gone; returns the last trial's result."""
    worker = WarmWorker(Mailbox(directory))
    answer_sigterm(lambda: worker.ending)
    return worker.serve()


class WarmWorker:
    """One worker process and the state it keeps between trials."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._starter = os.getppid()
        self._installed = list(sys.path)
        self._kept: Dict[str, Any] = {}
        self._served = 0
        self._threads = 0
        self.ending: Optional[ResultClaim] = None
        """Claim of the running trial; ``None`` between trials."""

    def serve(self) -> Result:
        result = Result(ok=True)
        number = 1
        while result.ok:
            letter = self._wait(number)
            if letter is None or not self._fits(letter):
                break
            result = self._run(number, letter)
            if result.ok:
                spec = read_spec(RunPaths(Path(letter.directory)).config)
                self._mailbox.reply(number, self._put_back(spec))
            number += 1
        return result

    def _fits(self, letter: Letter) -> bool:
        """Tells whether this process may run the trial; if not, it exits without a record and a new process starts."""
        if not self._served:
            return True
        try:
            spec = read_spec(RunPaths(Path(letter.directory)).config)
        except (ContractError, OSError):
            return True  # the trial itself will say so
        return bool(framework_of(spec).fits(self._kept, spec))

    def _wait(self, number: int) -> Optional[Letter]:
        """Waits for the next letter; returns ``None`` once the parent process is gone."""
        while True:
            letter = self._mailbox.read_letter(number)
            if letter is not None:
                return letter
            if os.getppid() != self._starter:
                return None
            time.sleep(LOOK_S)

    def _run(self, number: int, letter: Letter) -> Result:
        paths = RunPaths(Path(letter.directory))
        self._kept["worker"] = {"worker": letter.worker, "number": number, "floor": tree_pss()}
        ending = self.ending = ResultClaim(paths)
        paths.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(str(paths.scratch))
        result = run(paths, ending, state=self._kept)
        self.ending = None
        sys.stdout.flush()
        sys.stderr.flush()
        return result

    def _put_back(self, spec: TrialSpec) -> WorkerReply:
        """Cleans up after a trial; the reply lists the parts that could not be cleaned up."""
        self._mailbox.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(str(self._mailbox.scratch))
        forget_modules(reward_folders(spec), self._installed)
        left = [framework_of(spec).put_back(self._kept), self._new_threads()]
        unlimit_data()
        give_back()
        self._served += 1
        gpu = device_bytes() if spec.device == "cuda" else None
        return WorkerReply(tree_pss(), ", ".join(what for what in left if what), gpu)

    def _new_threads(self) -> str:
        """Returns ``threads`` if there are more than after the first trial, which leaves some for the next."""
        now = threading.active_count()
        self._threads = self._threads or now
        return "threads" if now > self._threads else ""


def device_bytes() -> int:
    """Returns the bytes in use on this process's GPU, by any process."""
    free, total = importlib.import_module("torch").cuda.mem_get_info()
    return int(total - free)


def reward_folders(spec: TrialSpec) -> List[str]:
    """Returns the folders of the user's own rewards."""
    paths = [reward.path for reward in spec.rewards if reward.path]
    return [path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path)) for path in paths]


def forget_modules(folders: Sequence[str], installed: Sequence[str]) -> None:
    """Forgets the modules imported from ``folders``, so that the next trial imports a user's reward again.

    Args:
        installed: subfolders whose modules are kept, such as an environment's packages.
    """
    roots = _inside(folders)
    kept = _inside([*installed, sys.prefix, sys.base_prefix])
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = os.path.realpath(file) if isinstance(file, str) else ""
        ours = (name + ".").startswith(PACKAGE + ".")
        if path.endswith(".py") and path.startswith(roots) and not path.startswith(kept) and not ours:
            del sys.modules[name]


def _inside(folders: Sequence[str]) -> Tuple[str, ...]:
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)


def unlimit_data() -> None:
    """Sets the soft ``RLIMIT_DATA`` back to the hard limit; the next trial sets its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def give_back() -> None:
    """Runs the garbage collector, and returns free memory to the operating system."""
    gc.collect()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library keeps what it keeps: the floor will tell
        ctypes.CDLL(None).malloc_trim(0)
