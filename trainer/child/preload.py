"""Imports a framework once and forks itself for each trial.

It has touched no GPU and has only one Python thread, so that a fork has everything a new process would have. Its key is
the set of imports and their environment; it refuses a trial with another key, which then starts as a new process.

The tuner holds the other end of the socket that is this process's standard input. Each message is one JSON object.

- From here: ``{"begins": key}`` before the imports, then ``{"ready": key}`` or ``{"unfit": why}``; ``{"pid": n}`` or
``{"refused": why}`` for each ``fork``; ``{"ended": pid, "code": n}`` when a forked process has ended.
- From the tuner: ``{"fork": {...}}`` with two descriptors (log, go), ``{"end": true}``.

A forked process waits for a byte on ``go``, so that it never runs after the tuner has given up on it. When the tuner is
gone, this process and its forks end.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import began, worker
from .contract import TAG_VARIABLE, FailureReason, Result, RunPaths, TrialSpec, read_spec
from .memory import OutsideSharers

DEVICE = "/dev/nvidia-uvm"
"""Device file that exists on machines with NVIDIA GPUs."""


def uses_gpu() -> bool:
    """Tells whether this process has initialised CUDA; until then the driver returns ``CUDA_ERROR_NOT_INITIALIZED``."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != 3)
    except (OSError, AttributeError):
        return False


class GpuOpenWatch:
    """Finds the import that opens a GPU: checks, while active, around each import statement that loads a module.

    ``culprit`` is the innermost module whose import opened a GPU, as "NAME, imported by NAME", or "NAME" if it did so
    before another import of its own; empty if no module did.

    Args:
        opened: tells whether a GPU is open.
        there: whether the machine has GPUs; without GPUs nothing is watched.
        after: called after each import statement that loads a module.
    """

    def __init__(
        self,
        opened: Callable[[], bool] = uses_gpu,
        there: Optional[bool] = None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.culprit = ""
        self._after = after
        self._opened = opened
        self._there = os.path.exists(DEVICE) if there is None else there
        self._import: Any = None
        self._late = 0  # imports under way that began when it was open

    def __enter__(self) -> "GpuOpenWatch":
        if self._there and not self._opened():
            self._import = builtins.__import__
            builtins.__import__ = self._watched
        return self

    def __exit__(self, *_: object) -> None:
        if self._import is not None:
            builtins.__import__ = self._import
            self._import = None

    def _watched(self, name: str, *rest: Any, **named: Any) -> Any:
        before, was_open = len(sys.modules), self._opened()
        by = ((rest[0] if rest else named.get("globals")) or {}).get("__name__", "?")
        loading = getattr(getattr(sys.modules.get(by), "__spec__", None), "_initializing", False)
        if was_open and not self._late and loading:  # else a module called a function of it
            self.culprit = self.culprit or by
        self._late += was_open
        try:
            return self._import(name, *rest, **named)
        finally:
            self._late -= was_open
            if len(sys.modules) != before:  # what only looks up a loaded module has run nothing
                self._after()
                if not was_open and not self.culprit and self._opened():
                    self.culprit = "%s, imported by %s," % (name or "a module of its package", by)


Capability = Optional[Tuple[int, int]]


def driver_capability(load: Callable[[str], Any] = ctypes.CDLL) -> Capability:
    """Returns the compute capability of the machine's GPUs; ``None`` if they differ or the driver does not know it."""
    try:
        nvml = load("libnvidia-ml.so.1")
        return _capability(nvml) if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):  # no driver, or one without such a function
        return None


def _capability(nvml: Any) -> Capability:
    found = set()
    try:
        count = ctypes.c_uint()
        failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            failed = failed or nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            numbers = ctypes.byref(major), ctypes.byref(minor)
            failed = failed or nvml.nvmlDeviceGetCudaComputeCapability(handle, *numbers)
            found.add((major.value, minor.value))
    finally:
        nvml.nvmlShutdown()
    return found.pop() if len(found) == 1 and not failed else None


ANSWERS = (
    ("torch.cuda", "get_device_capability", lambda told: told),
    # torch 2.13, torch/utils/_triton.py:189
    ("torch.utils._triton", "has_triton", lambda told: told >= (7, 0) and bool(importlib.util.find_spec("triton"))),
)
"""(Module, name of a function that queries the GPU, its answer computed from the compute capability)."""


class CapabilityByDriver:
    """Makes torch report the driver's compute capability between ``put`` and ``take_back``, also in functions that were
    imported earlier.

    ``capability`` is the driver's answer; ``None`` leaves torch unchanged.
    """

    def __init__(self, capability: Capability) -> None:
        self._told = capability
        self._own: List[Tuple[Any, str, Any]] = []

    def put(self) -> None:
        """Replaces the functions as soon as their modules are imported; can be called repeatedly."""
        replaced = [module for module, _, _ in self._own]
        for name, question, answer in ANSWERS:
            module: Any = sys.modules.get(name)
            if self._told is not None and module not in replaced and hasattr(module, question):
                self._own.append((module, question, getattr(module, question)))
                setattr(module, question, self._answering(getattr(module, question), answer))

    def _answering(self, own: Any, by_capability: Callable[[Any], Any]) -> Any:
        @functools.wraps(own)
        def answer(*args: Any, **kwargs: Any) -> Any:
            return own(*args, **kwargs) if self._told is None else by_capability(self._told)

        return answer

    def take_back(self) -> None:
        """Puts torch's own functions back."""
        self._told = None
        for module, question, own in self._own:
            setattr(module, question, own)


COMMANDS = {"trial": "worker", "worker": "warm"}
"""Commands that a forked process can run: command of ``start`` -> module."""
ENV_START, ENV_END = 47, 48
"""Indices of proc(5)'s ``env_start`` and ``env_end`` in the list that ``stat_fields`` returns."""
MESSAGE = 1 << 16
REHEARSAL_S = 60.0
SETTLE_S = 0.5
"""Seconds to wait for threads that an import started and that end by themselves."""


def main(directory: Path) -> Result:
    """Serves fork requests until the tuner ends this process; ``directory`` has the first trial's ``config.json``."""
    channel = _take_channel()
    try:
        spec = first_spec(directory)
        framework = importlib.import_module(worker.FRAMEWORKS[spec.framework], __package__)
        send(channel, {"begins": framework.key(spec)})
        why = of_slices() or unfit(import_ahead(framework, spec)) or rehearsed(framework)
    except BaseException as error:  # whatever it is: the trial itself says it better
        why = "%s: %s" % (type(error).__name__, error)
    if why:
        send(channel, {"unfit": why[:1000]})
        return Result(ok=False, reason=FailureReason.CRASH, message=why)
    send(channel, {"ready": framework.key(spec)})
    PreloadServer(channel, framework, framework.key(spec)).serve()
    return Result(ok=True)


def first_spec(directory: Path) -> TrialSpec:
    """Reads the spec of the trial in ``directory``, or of the first trial in a warm worker's mailbox."""
    paths = RunPaths(directory)
    if not paths.config.exists():
        letter = json.loads((directory / "1.letter.json").read_text(encoding="utf-8"))
        paths = RunPaths(Path(letter["directory"]))
    return read_spec(paths.config)


def import_ahead(framework: ModuleType, spec: Any) -> str:
    """Imports the framework, while NVML instead of CUDA answers torch's queries about GPUs and Triton.

    Returns the import that opened a GPU nevertheless; empty without one.
    """
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    own = os.environ.get(name)
    os.environ[name] = "1"
    capability = CapabilityByDriver(driver_capability() if spec.device == "cuda" else None)
    stay = began.end_with_parent()  # an import reads no channel
    try:
        with GpuOpenWatch(after=capability.put) as watch:
            framework.bring_in_ahead(spec)
    finally:
        stay()
        capability.take_back()
        os.environ.pop(name, None)
        os.environ.update({} if own is None else {name: own})
    return watch.culprit


def of_slices() -> str:
    """Returns the reason why imports open a GPU here, empty if none: torch counts MIG slices with CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return "torch opens a slice of a GPU (MIG) to count it" if visible.startswith("MIG-") else ""


def unfit(culprit: str = "") -> str:
    """Returns the reason why this process must not be forked, empty if none; it names ``culprit``, a module."""
    if uses_gpu():
        return "%s has opened a GPU" % (culprit or "something imported")
    end = time.monotonic() + SETTLE_S
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.02)
    if threading.active_count() > 1:
        return "threads are running: %s" % ", ".join(sorted(thread.name for thread in threading.enumerate()))
    return ""


def rehearsed(framework: ModuleType) -> str:
    """Returns the reason why a fork of this process cannot compute; empty if a test fork computed.

    A fork loses the libraries' threads. numpy's and scipy's linear algebra and Arrow's allocator handle the loss; after
    use of an OpenMP pool, a fork waits for the lost threads for ever.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if getattr(framework, "rehearse", compute)() else 1
        finally:
            os._exit(code)
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = bool(poll.poll(REHEARSAL_S * 1000))
    os.close(handle)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not ended:
        return "a fork hangs when it computes"
    return "" if status == 0 else "a fork cannot compute (exit code %d)" % os.waitstatus_to_exitcode(status)


def compute() -> bool:
    """Tests a small forward and backward pass with all threads of torch and numpy; true if torch is not imported."""
    if "torch" not in sys.modules:
        return True
    torch, numpy = importlib.import_module("torch"), importlib.import_module("numpy")
    size = 256
    weights = torch.ones(size, size, requires_grad=True)
    (weights @ weights).relu().sum().backward()
    return bool(numpy.dot(numpy.ones((size, size)), numpy.ones((size, size)))[0, 0] == size)


def send(channel: socket.socket, message: Dict[str, Any]) -> None:
    """Sends a message; does nothing if the tuner is gone, since this process then ends."""
    with contextlib.suppress(OSError):
        channel.send(json.dumps(message).encode())


def _take_channel() -> socket.socket:
    """Takes over the socket at standard input, so that no other code reads it."""
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return channel


class PreloadServer:
    """Serves one request at a time, and reports forked processes that end."""

    def __init__(self, channel: socket.socket, framework: Any, key: str) -> None:
        self._channel = channel
        self._framework = framework
        self._key = key
        self._children: Dict[int, int] = {}
        """pid -> its pidfd."""

    def serve(self) -> None:
        """Serves until the tuner ends the connection."""
        while True:
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            for handle in self._children.values():
                poll.register(handle, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            for pid in [pid for pid, handle in self._children.items() if handle in ready]:
                self._tell_end(pid)
            if self._channel.fileno() in ready and not self._answer():
                return

    def _tell_end(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        os.close(self._children.pop(pid))
        send(self._channel, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _answer(self) -> bool:
        """Serves one request; returns false if the tuner has ended the connection."""
        try:
            data, handles, _, _ = socket.recv_fds(self._channel, MESSAGE, 2)
        except ConnectionError:
            data, handles = b"", []
        if not data:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
            return False
        message = json.loads(data)
        if "end" in message:
            return False
        try:
            why = self._refusal(message["fork"])
            send(self._channel, {"refused": why} if why else {"pid": self._fork(message["fork"], handles)})
        except OSError as error:
            send(self._channel, {"refused": "cannot fork: %s" % error})
        finally:
            for handle in handles:
                os.close(handle)
        return True

    def _refusal(self, request: Dict[str, Any]) -> str:
        if request["command"] not in COMMANDS:
            return "no command %s" % request["command"]
        try:
            if self._framework.key(first_spec(Path(request["directory"]))) != self._key:
                return "another key"
        except Exception as error:
            return "config.json cannot be read: %s" % error
        return unfit()

    def _fork(self, request: Dict[str, Any], handles: Sequence[int]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _run_forked(self._channel, list(self._children.values()), request, list(handles))
        self._children[pid] = os.pidfd_open(pid)
        return pid


def _run_forked(channel: socket.socket, inherited: List[int], request: Dict[str, Any], handles: List[int]) -> None:
    """Runs the command in the forked process, and ends the process; never returns."""
    code = 1
    try:
        channel.close()
        for handle in inherited:
            os.close(handle)
        become(request, *handles)
        code = run(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _leave(code)


def become(request: Dict[str, Any], log: int, go: int) -> None:
    """Turns a fork into its trial's process: waits for ``go``, then sets output, tag, folder, arguments and seeds."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    if os.read(go, 1) == b"":
        os._exit(1)  # nobody waits for this process any more
    os.close(log)
    os.close(go)
    try:
        retag(request["tag"])
    except NoRoomError as error:
        sys.stderr.write("%s\n" % error)
        os._exit(1)
    os.chdir(request["cwd"])
    sys.argv[1:] = [request["command"], "--directory", request["directory"]]
    random.seed()
    numpy: Optional[Any] = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    began.asked_at(float(request["asked"]))
    OutsideSharers.origin, OutsideSharers.others = (os.getppid(),), tuple(request.get("others", ()))


def run(request: Dict[str, Any]) -> int:
    """Runs the request's command as ``start`` would; returns the exit code."""
    cwd = os.path.realpath(os.getcwd())
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != cwd]
    command = importlib.import_module("." + COMMANDS[request["command"]], __package__)
    return 0 if command.main(Path(request["directory"])).ok else 1


def _leave(code: int) -> None:
    """Ends the fork as the interpreter would, without the exit handlers of the process it was forked from."""
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code)


class NoRoomError(ValueError):
    """The process's environment block has no room for the tag."""


def retag(tag: str) -> None:
    """Puts ``tag`` into the environment of this forked process, and so of all processes it starts.

    ``/proc/PID/environ`` shows the process's original memory, not later changes of ``os.environ``. So the tag is
    written into that memory, over the original tag.

    Raises NoRoomError if the process was started without a tag, or with a shorter one.
    """
    fields = began.stat_fields(os.getpid())
    start, end = (int(fields[ENV_START]), int(fields[ENV_END])) if len(fields) > ENV_END else (0, 0)
    if not 0 < start < end:
        raise NoRoomError("the kernel does not say where the environment is")
    name = b"\0" + TAG_VARIABLE.encode() + b"="
    memory = b"\0" + ctypes.string_at(start, end - start)
    at = memory.find(name)
    if at < 0:
        raise NoRoomError("this process was started without a tag")
    value = at + len(name)
    room = memory.index(b"\0", value) - value
    new = tag.encode()
    if len(new) > room:
        raise NoRoomError("the tag %r is longer than the %d bytes there are" % (tag, room))
    ctypes.memmove(start + value - 1, new + b"\0" * (room - len(new)), room)
    os.environ[TAG_VARIABLE] = tag
