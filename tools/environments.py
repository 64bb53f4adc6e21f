"""Makes the environments of a checkout: the tool's, and those of the training frameworks. Standard library only.

An environment stores the digest of its inputs. So a current one costs milliseconds, and a half-made one is detected and
finished.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MINIMUM_DRIVER = 580
"""First driver branch with CUDA 13, for which the pinned vLLM and torch are built."""


class Stack(StrEnum):
    """The lock file of the training environment: ``requirements/train-<value>.txt``."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver's facts about this machine."""

    version: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """The stack to install, or ``None`` if none fits; ``sentence`` gives the reason."""

    stack: Stack | None
    sentence: str


def choose(driver: Driver | None) -> Choice:
    """Chooses the stack for a machine with this ``driver``; ``None`` means no NVIDIA GPU."""
    if driver is None or not driver.devices:
        return Choice(Stack.CPU, "no NVIDIA GPU here: trials run on the CPU")
    gpus = f"{len(driver.devices)} x {driver.devices[0]}"
    branch = driver.version.split(".")[0]
    if not branch.isdigit():
        return Choice(None, f"{gpus}: the driver calls its version {driver.version!r}, which is none. {WAYS_OUT}")
    if int(branch) < MINIMUM_DRIVER:
        return Choice(
            None,
            f"{gpus}: driver {driver.version} is too old for the GPU stack, which needs CUDA 13 and driver "
            f"{MINIMUM_DRIVER} or newer. Nothing was downloaded. {WAYS_OUT}",
        )
    return Choice(Stack.GPU, f"{gpus}, driver {driver.version}: trials run on the GPU")


WAYS_OUT = (
    f"Update the driver to {MINIMUM_DRIVER} or newer, or name your own training environment with "
    "PYTHON=/path/to/bin/python, or run on the CPU with CPU=1."
)


def read_driver() -> Driver | None:
    """Reads the driver by nvidia-smi, or by NVML without nvidia-smi; ``None`` without a working driver."""
    return _ask_nvidia_smi() if shutil.which("nvidia-smi") else _ask_nvml(_load_nvml)


def _ask_nvidia_smi() -> Driver | None:
    command = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split(",", 1) for line in answer.stdout.splitlines() if "," in line]
    if answer.returncode != 0 or not rows:
        return None
    return Driver(rows[0][0].strip(), tuple(name.strip() for _, name in rows))


def _load_nvml() -> ctypes.CDLL:
    return ctypes.CDLL("libnvidia-ml.so.1")


def _ask_nvml(load: Callable[[], ctypes.CDLL]) -> Driver | None:
    try:
        nvml = load()
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        version = ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        if nvml.nvmlSystemGetDriverVersion(version, ctypes.c_uint(96)) != 0:
            return None
        return Driver(version.value.decode("ascii", "replace"), tuple(_name(nvml, i) for i in range(count.value)))
    finally:
        nvml.nvmlShutdown()


def _name(nvml: ctypes.CDLL, index: int) -> str:
    handle = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return "GPU"
    if nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(96)) != 0:
        return "GPU"
    return name.value.decode("utf-8", "replace")


QUIET = {
    "PYTHONWARNINGS": "ignore",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""Variables that silence warnings of the training packages at import."""
QUIETLY = (
    "import logging; [logging.getLogger(n).addFilter(lambda r: r.levelno >= logging.ERROR) "
    "for n in ('torchao', 'torch.utils._pytree', 'DeepSpeed')]"
)
"""Code that silences warnings without such a variable: torchao reports every GPU kernel it cannot load, torch how
torchao registers its constants, DeepSpeed that there is no GPU.

A filter, because DeepSpeed sets its logger's level itself. The reader of a set-up cannot act on these warnings; errors
are still shown."""


def quiet_environment() -> dict[str, str]:
    """Returns the environment of a quiet child: ours, offline, with ``QUIET``; variables of the caller win."""
    return {**QUIET, **os.environ, "HF_HUB_OFFLINE": "1"}


class SetupError(RuntimeError):
    """The set-up cannot continue; the message is a sentence with the remedy."""


def say(text: str) -> None:
    """Prints to stderr: stdout is for data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def elapsed(started: float) -> str:
    """Formats the time since ``started`` (``time.monotonic()``): ``48 s`` or ``3 min 05 s``."""
    seconds = round(time.monotonic() - started)
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02d} s"


def run(command: list[str], complaint: str, environment: dict[str, str] | None = None) -> None:
    """Runs ``command`` to its end with its output shown.

    Raises SetupError with ``complaint`` if it cannot be started or fails.
    """
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        raise SetupError(f"{complaint}: {error}") from error
    if code != 0:
        raise SetupError(f"{complaint} (exit code {code}; its output is above)")


ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
STAMP = "made-from.sha256"
SOLVER = "pycosat==0.6.6"
"""Solver that reasoning-gym imports for one task; it has no wheels and must be compiled."""
PIP = ("-m", "pip", "--disable-pip-version-check")


Step = Callable[[Path], None]
"""One step of making an environment; takes the environment's interpreter."""


def python_of(environment: Path) -> Path:
    """Returns the interpreter of an environment."""
    return environment / "bin" / "python"


def digest_of(environment: Path, files: tuple[Path, ...]) -> str:
    """Returns a digest of the contents of ``files``, the environment's path and the Python version."""
    total = hashlib.sha256(f"{environment}\n{sys.version_info[:2]}\n".encode())
    for path in files:
        total.update(path.read_bytes())
    return total.hexdigest()


def is_current(environment: Path, digest: str) -> bool:
    """Tells whether ``environment`` was completed from the inputs of ``digest``."""
    stamp = environment / STAMP
    return python_of(environment).exists() and stamp.is_file() and stamp.read_text(encoding="ascii") == digest


def _make(environment: Path, name: str, files: tuple[Path, ...], *steps: Step) -> None:
    """Makes ``environment`` of ``name`` from ``files`` by ``steps``, unless it is current.

    Raises SetupError if the environment cannot be made, or a package cannot be installed or imported.
    """
    digest = digest_of(environment, files)
    if is_current(environment, digest):
        return
    started = time.monotonic()
    say(f"{name}: installing it into {environment.name}, once")
    python = _fresh(environment)
    for step in steps:
        step(python)
    (environment / STAMP).write_text(digest, encoding="ascii")
    say(f"{name}: ready after {elapsed(started)}")


def make_tool_environment(environment: Path, locked: str = "dev.txt") -> None:
    """Makes the tool's environment with its development tools and this checkout in editable form.

    Args:
        environment: folder to make.
        locked: lock file; ``ray.txt`` adds Ray.

    Raises:
        SetupError: as ``_make``.
    """
    lock = REQUIREMENTS / locked
    packages = _installing("--quiet", "--require-hashes", "-r", str(lock))
    _make(environment, "the tool", (lock, ROOT / "pyproject.toml"), packages, _CHECKOUT)


def make_training_environment(environment: Path, stack: Stack, torch_index: str | None = None) -> None:
    """Makes the training environment from its lock file: torch first, all other packages without dependencies.

    Args:
        environment: folder to make.
        stack: selects the lock file.
        torch_index: package index to take torch from instead of pip's own (CPU builds are smaller).

    Raises:
        SetupError: as ``_make``.
    """
    lock = REQUIREMENTS / f"train-{stack}.txt"
    steps = (*_locked(lock, torch_index), _install_solver, _check_imports)
    _make(environment, f"training stack ({stack})", (lock,), *steps)


def make_peers_environment(environment: Path, torch_index: str | None = None) -> None:
    """Makes the environment of the peers in ``python -m benchmarks.worlds``: the tool and torch, as locked.

    Arguments and errors are those of ``make_training_environment``.
    """
    lock = REQUIREMENTS / "search-peers.txt"
    steps = (*_locked(lock, torch_index), _CHECKOUT)
    _make(environment, "the peers of the search", (lock, ROOT / "pyproject.toml"), *steps)


BELOW = {"verl": (3, 13)}
"""Framework -> first Python version without a release (by its metadata)."""


def make_framework_environment(environment: Path, name: str, imports: str, torch_index: str | None = None) -> None:
    """Makes the environment of a framework that cannot share the training environment, from its lock file.

    Args:
        environment: folder to make.
        name: name of the lock file ``requirements/<name>.txt``.
        imports: modules that must be importable afterwards, separated by commas.
        torch_index: package index to take torch from instead of pip's own (CPU builds are smaller).

    Raises:
        SetupError: the framework has no release for this Python, an environment cannot be made here, or a package
            cannot be installed or imported.
    """
    below = BELOW.get(name)
    if below is not None and sys.version_info[:2] >= below:
        here, first = (".".join(map(str, version)) for version in (sys.version_info[:2], below))
        raise SetupError(f"{name} takes Python below {first}, not {here}; name one with BOOTSTRAP=/path/to/python")
    lock = REQUIREMENTS / f"{name}.txt"
    steps = list(_locked(lock, torch_index))
    if "\nreasoning-gym==" in lock.read_text(encoding="utf-8"):
        steps.append(_install_solver)
    complaint = f"{name} was installed but cannot be imported"
    _make(environment, name, (lock,), *steps, lambda python: _import(python, imports, complaint))


def pin_of(lock: Path, package: str) -> str:
    """Returns the line of ``lock`` that pins ``package``, without its comment."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        pin = line.split("#")[0].strip()
        if pin.startswith(f"{package}=="):
            return pin
    raise SetupError(f"{lock} does not pin {package}")


def _fresh(environment: Path) -> Path:
    """Returns an interpreter to install into: a half-made environment's if it works, else a new one."""
    (environment / STAMP).unlink(missing_ok=True)
    python = python_of(environment)
    if not _works(python):
        try:
            venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(environment)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(
                f"{sys.executable} cannot make a virtual environment ({error}); on Debian and Ubuntu install "
                f"python3.{sys.version_info.minor}-venv"
            ) from error
    return python


def _works(python: Path) -> bool:
    """Tells whether ``python`` has our version and pip; a moved or half-made environment does not."""
    code = f"import sys, pip; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    return (
        python.exists() and subprocess.run([str(python), "-c", code], check=False, capture_output=True).returncode == 0
    )


def _pip(python: Path, *arguments: str) -> None:
    run([str(python), *PIP, *arguments], f"pip could not finish: {' '.join(arguments)}")


def _installing(*arguments: str) -> Step:
    return lambda python: _pip(python, "install", *arguments)


_CHECKOUT = _installing("--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def _locked(lock: Path, index: str | None) -> tuple[Step, ...]:
    """Returns the steps that install torch, then all other packages of ``lock``; torch comes with its dependencies, but
    alone from an ``index``.
    """
    began, pin = time.monotonic(), pin_of(lock, "torch")
    torch = ("--no-deps", "--index-url", index, pin) if index else ("--constraint", str(lock), pin)
    said: Step = lambda _: say(f"torch is there after {elapsed(began)}; now the rest")  # noqa: E731
    return _installing(*torch), said, _installing("--no-deps", "-r", str(lock))


def _install_solver(python: Path) -> None:
    """Installs the solver; without a compiler, installs a module that reports its absence."""
    command = [str(python), *PIP, "install", "--quiet", "--no-deps", SOLVER]
    if subprocess.run(command, check=False, capture_output=True).returncode == 0:
        return
    say(f"training stack: {SOLVER} could not be compiled here; reasoning-gym works without its zebra_puzzles")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    shutil.copyfile(Path(__file__).with_name("pycosat_missing.py"), Path(answer.stdout.strip()) / "pycosat.py")


def _check_imports(python: Path) -> None:
    names = "torch, transformers, trl, peft, datasets, reasoning_gym, deepspeed, vllm"
    complaint = "the training stack was installed but cannot be imported"
    _import(python, names, complaint, "print(torch.__version__, trl.__version__)")


def _import(python: Path, names: str, complaint: str, then: str = "pass") -> None:
    """Imports the modules ``names`` (separated by commas) without their warnings, and runs ``then``.

    Raises SetupError with ``complaint``; the error itself is on the screen.
    """
    run([str(python), "-c", f"{QUIETLY}; import {names}; {then}"], complaint, quiet_environment())
