"""Makes the environments of a checkout: the tool's, and those of the training frameworks. Standard library only.

An environment stores the digest of its inputs, so an up-to-date environment is recognised in milliseconds, and an
incomplete one is finished.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
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
    """Version of the NVIDIA driver, and names of its GPUs."""

    version: str
    devices: tuple[str, ...]


WAYS_OUT = (
    f"Update the driver to {MINIMUM_DRIVER} or newer, or name your own training environment with "
    "PYTHON=/path/to/bin/python, or run on the CPU with CPU=1."
)


class SetupError(RuntimeError):
    """The set-up cannot continue; the message is a sentence with the remedy."""


def choose(driver: Driver | None) -> tuple[Stack, str]:
    """Returns the stack for a machine with this ``driver`` and the reason; ``None`` means no NVIDIA GPU.

    Raises SetupError if no stack fits.
    """
    if driver is None or not driver.devices:
        return Stack.CPU, "no NVIDIA GPU here: trials run on the CPU"
    gpus = f"{len(driver.devices)} x {driver.devices[0]}"
    branch = driver.version.split(".")[0]
    if not branch.isdigit():
        raise SetupError(f"{gpus}: the driver calls its version {driver.version!r}, which is none. {WAYS_OUT}")
    if int(branch) < MINIMUM_DRIVER:
        raise SetupError(
            f"{gpus}: driver {driver.version} is too old for the GPU stack, which needs CUDA 13 and driver "
            f"{MINIMUM_DRIVER} or newer. Nothing was downloaded. {WAYS_OUT}"
        )
    return Stack.GPU, f"{gpus}, driver {driver.version}: trials run on the GPU"


SMI_FOLDERS = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
"""Folders of ``nvidia-smi`` on Kubernetes' nodes and in Windows' Linux, where PATH may lack them."""


def read_driver() -> Driver | None:
    """Reads the driver by nvidia-smi; ``None`` without a working driver."""
    smi = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *SMI_FOLDERS)))
    if smi is None:
        return None
    command = [smi, "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split(",", 1) for line in answer.stdout.splitlines() if "," in line]
    if answer.returncode != 0 or not rows:
        return None
    return Driver(rows[0][0].strip(), tuple(name.strip() for _, name in rows))


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
    """Returns this process's variables for a quiet subprocess, with offline mode and ``QUIET`` where not set."""
    return {**QUIET, **os.environ, "HF_HUB_OFFLINE": "1"}


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


@dataclass(frozen=True)
class Kind:
    """Recipe of an environment."""

    name: str
    """Name in messages."""
    lock: str
    """Name of its lock file."""
    imports: str = ""
    """Modules that must be importable afterwards, separated by commas; code may follow."""
    hashed: bool = False
    """True: the lock has hashes and no torch. Otherwise torch is installed first, all else without dependencies."""
    checkout: bool = False
    """True: this checkout is in it, in editable form."""
    below: tuple[int, int] | None = None
    """First Python version that the packages do not support, by their metadata."""


TOOL = Kind("the tool", "dev.txt", hashed=True, checkout=True)
_STACK_IMPORTS = "torch, transformers, trl, peft, datasets, reasoning_gym, deepspeed, vllm"
TRAINING = {
    stack: Kind(
        f"training stack ({stack})",
        f"train-{stack}.txt",
        f"{_STACK_IMPORTS}; print(torch.__version__, trl.__version__)",
    )
    for stack in Stack
}
# What a trial imports, not what stands in front of it: trl and verl import their parts only when they are used.
OTHERS = {
    "ray": Kind("the tool with Ray", "ray.txt", hashed=True, checkout=True),
    "peers": Kind("the peers of the search", "search-peers.txt", checkout=True),
    "open-r1": Kind(
        "open-r1",
        "open-r1.txt",
        "trl.trainer.grpo_trainer, peft, math_verify, latex2sympy2_extended, async_lru, aiofiles, aiohttp, dotenv, "
        "pandas",
    ),
    "swift": Kind(
        "ms-swift", "ms-swift.txt", "torch, swift.pipelines, swift.rlhf_trainers.grpo_trainer, reasoning_gym"
    ),
    "verl": Kind(
        "verl",
        "verl.txt",
        "hydra, verl.trainer.ppo.metric_utils, verl.trainer.ppo.reward, verl.utils.config, verl.utils.tracking, "
        "verl.utils.dataset.rl_dataset, verl.workers.config",
        below=(3, 13),
    ),
}
"""Option of the set-up -> environment that is made only if the option names its folder."""


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


def make(environment: Path, kind: Kind, torch_index: str | None = None) -> None:
    """Makes ``environment`` unless it is current.

    Args:
        environment: folder to make.
        kind: its recipe.
        torch_index: package index to take torch from instead of pip's own (CPU builds are smaller).

    Raises:
        SetupError: there is no release for this Python, an environment cannot be made here, or a package cannot be
            installed or imported.
    """
    if kind.below is not None and sys.version_info[:2] >= kind.below:
        here, first = (".".join(map(str, version)) for version in (sys.version_info[:2], kind.below))
        raise SetupError(f"{kind.name} takes Python below {first}, not {here}; name one with BOOTSTRAP=/path/to/python")
    lock = REQUIREMENTS / kind.lock
    digest = digest_of(environment, (lock, ROOT / "pyproject.toml") if kind.checkout else (lock,))
    if is_current(environment, digest):
        return
    started = time.monotonic()
    say(f"{kind.name}: installing it into {environment.name}, once")
    python = _fresh(environment)
    if kind.hashed:
        _pip(python, "--quiet", "--require-hashes", "-r", str(lock))
    else:
        pin = pin_of(lock, "torch")
        # with its dependencies, but alone from an index
        _pip(python, *(("--no-deps", "--index-url", torch_index) if torch_index else ("--constraint", str(lock))), pin)
        say(f"torch is there after {elapsed(started)}; now the rest")
        _pip(python, "--no-deps", "-r", str(lock))
    if "\nreasoning-gym==" in lock.read_text(encoding="utf-8"):
        _install_solver(python)
    if kind.checkout:
        _pip(python, "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    if kind.imports:
        _import(python, kind.imports, f"{kind.name} was installed but cannot be imported")
    (environment / STAMP).write_text(digest, encoding="ascii")
    say(f"{kind.name}: ready after {elapsed(started)}")


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
    """Tells whether ``python`` runs with this interpreter's version and has pip; false for a moved environment."""
    code = f"import sys, pip; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    return (
        python.exists() and subprocess.run([str(python), "-c", code], check=False, capture_output=True).returncode == 0
    )


def _pip(python: Path, *arguments: str) -> None:
    run([str(python), *PIP, "install", *arguments], f"pip could not finish: install {' '.join(arguments)}")


def _install_solver(python: Path) -> None:
    """Installs the solver; without a compiler, installs a module that reports its absence."""
    command = [str(python), *PIP, "install", "--quiet", "--no-deps", SOLVER]
    if subprocess.run(command, check=False, capture_output=True).returncode == 0:
        return
    say(f"training stack: {SOLVER} could not be compiled here; reasoning-gym works without its zebra_puzzles")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    shutil.copyfile(Path(__file__).with_name("pycosat_missing.py"), Path(answer.stdout.strip()) / "pycosat.py")


def _import(python: Path, names: str, complaint: str) -> None:
    """Imports the modules ``names`` (separated by commas; code may follow) without their warnings.

    Raises SetupError with ``complaint``; the error itself is on the screen.
    """
    run([str(python), "-c", f"{QUIETLY}; import {names}"], complaint, quiet_environment())
