"""Builds the command line and environment of a trial's processes, with the tuner's variables that affect its figures.

An allow-list without secrets, because a trial's environment ends up in logs and crash reports. ``HF_TOKEN`` is the one
secret passed on unless ``--env`` names others: gated models cannot be loaded without it. ``PYTHONPATH`` is not passed
on: it would put the tuner's packages, and others in the same folder, before those of the training environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from autotune.errors import UsageError
from autotune.machine.surroundings import has_name
from autotune.ports import Rendezvous
from autotune.running.log import CappedLog, LogPump
from autotune.running.process_tree import Child
from trainer.child.contract import TAG_VARIABLE, RunPaths, TrialSpec

SHARDING = ("deepspeed", "fsdp")
"""Settings of frameworks that need a launcher even with one process."""


def launched(spec: TrialSpec) -> bool:
    """Tells whether ``torchrun`` starts the trial's processes."""
    return spec.world_size > 1 or any(spec.settings.get(name) for name in SHARDING)


def command(
    python: str, start: Path, paths: RunPaths, spec: TrialSpec, meeting: Rendezvous | None = None
) -> tuple[str, ...]:
    """Returns the command line of the child, under ``torchrun`` if there are several ranks.

    The ranks meet at this machine's loopback address, on a port the system chooses, or as ``meeting`` says.
    """
    child = (str(start), "trial", "--directory", str(paths.root))
    if not launched(spec):
        return (python, *child)
    ranks = (*_place(meeting), "--nproc-per-node", str(_here(spec, meeting)))
    # Without a folder of ours it leaves one of its own under /tmp.
    return (python, "-m", "torch.distributed.run", *ranks, "--log-dir", str(paths.scratch / "ranks"), *child)


def worker_command(python: str, start: Path) -> tuple[str, ...]:
    """Returns the command line of a warm worker, without its mailbox folder."""
    return (python, str(start), "worker", "--directory")


CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor"}
"""Variable -> folder of a compiler cache that is keyed by source, versions and device, so all trials can share it.

torch's default is in the folder for temporary files; Triton's and vLLM's are in the user's cache folder and stay there.
"""


def caches(folder: Path | None, own: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of compiler caches in ``folder``; the tuner's own environment variables take precedence."""
    if folder is None:
        return {}
    return {name: str(folder / place) for name, place in CACHES.items() if name not in own}


def _place(meeting: Rendezvous | None) -> tuple[str, ...]:
    if meeting is None:
        return ("--standalone", "--local-addr", "127.0.0.1")
    nodes = ("--nnodes", str(meeting.nodes), "--node-rank", str(meeting.node))
    return (*nodes, "--master-addr", meeting.address, "--master-port", str(meeting.port))


def _here(spec: TrialSpec, meeting: Rendezvous | None) -> int:
    """Returns the number of ranks on this node."""
    return spec.world_size if meeting is None else spec.world_size // meeting.nodes


def environment(
    spec: TrialSpec, cores: int, own: Mapping[str, str], meeting: Rendezvous | None = None
) -> dict[str, str]:
    """Returns the variables added to the tuner's environment for a trial; the configuration's own take precedence.

    Args:
        cores: cores of this machine for a trial; ``torchrun`` alone would give a rank one thread.
        own: the tuner's environment; its number of threads is kept.
    """
    if not launched(spec) or "OMP_NUM_THREADS" in own:
        return dict(spec.environment)
    return {"OMP_NUM_THREADS": str(max(1, cores // _here(spec, meeting))), **spec.environment}


ALLOWED = re.compile(
    r"""
    PATH | HOME | USER | LOGNAME | SHELL | LANG | LANGUAGE | LC_.* | TZ | TMPDIR | TEMP | TMP | XDG_.*
    | VIRTUAL_ENV | CONDA_PREFIX | CONDA_DEFAULT_ENV | LD_LIBRARY_PATH | LD_PRELOAD | MALLOC_.*
    | SSL_CERT_FILE | SSL_CERT_DIR | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE | (?i:https?|no|all)_(proxy|PROXY)
    | CUDA.* | NVIDIA.* | NCCL_.* | GLOO_.* | UCX_.* | FI_.* | OMP_.* | GOMP_.* | KMP_.* | MKL_.*
    | OPENBLAS_.* | NUMEXPR_.*
    | HF_.* | HUGGINGFACE_.* | TRANSFORMERS_.* | TOKENIZERS_.* | SAFETENSORS_.* | TORCH.* | PYTORCH_.* | TRITON_.*
    | AUTOTUNE_TRIAL_.* | VLLM_.* | DS_.* | DEEPSPEED_.* | ACCELERATE_.*
    """,
    re.VERBOSE,
)
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL|PRIVATE_?KEY", re.IGNORECASE)
NOT_SECRET = frozenset({"HF_TOKEN", "TOKENIZERS_PARALLELISM"})

FIXED = {
    "PYTHONUNBUFFERED": "1",  # a killed child's last words are in the log
    "PYTHONFAULTHANDLER": "1",
    "SPT_NOENV": "1",  # engines rename their workers; without this the new name overwrites the tag
    "TERM": "dumb",
}


def child_environment(own: Mapping[str, str], tag: str) -> dict[str, str]:
    """Returns the whole environment of a trial's processes.

    Args:
        tag: tag of the attempt, by which a sweep finds its processes.
    """
    return {**nameless(own), **{n: v for n, v in own.items() if _allowed(n, own)}, **FIXED, TAG_VARIABLE: tag}


PASSED = "AUTOTUNE_ENV"
"""Variable with the names of further variables for trials, separated by commas."""


def let_through(names: Sequence[str]) -> None:
    """Allows these variables in the trials of this process's study. Raises ``UsageError`` if one is not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(f"--env {missing[0]}: there is no such variable; export it first, and give its name alone")
    own = os.environ.get(PASSED, "").split(",")
    os.environ[PASSED] = ",".join(dict.fromkeys(filter(None, (*own, *names))))


LOCAL = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TEMP|TMP|XDG_.*|VIRTUAL_ENV|CONDA_.*|LD_.*|CUDA_VISIBLE_DEVICES"
)
"""Variables that a trial may receive but whose values hold for one machine only."""


def passed_on(own: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the tuner's environment that trials on other machines receive."""
    return {name: value for name, value in own.items() if _allowed(name, own) and LOCAL.fullmatch(name) is None}


def nameless(own: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that name the user if the user database has no entry: torch names its caches after the user,
    and ``~`` would otherwise be a folder of that name."""
    if has_name():
        return {}
    return {"USER": f"user{os.geteuid()}", **({} if own.get("HOME") else {"HOME": tempfile.gettempdir()})}


def _allowed(name: str, own: Mapping[str, str]) -> bool:
    if name == PASSED or name in own.get(PASSED, "").split(","):
        return True
    return ALLOWED.fullmatch(name) is not None and (name in NOT_SECRET or SECRET.search(name) is None)


class Spawn(Protocol):
    """Protocol of functions that start a trial's process; ``spawn`` is one."""

    def __call__(
        self, argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
    ) -> tuple[Child, LogPump]: ...


def spawn(
    argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], LogPump]:
    """Starts the process; returns it with the running pump that fills ``log``. Closes ``log`` if that fails.

    Args:
        environment: variables added to those of every trial.

    Raises:
        OSError: the process could not be started.
    """
    child, (pump,) = spawn_into(argv, cwd, tag, (log,), environment)
    return child, pump


def spawn_into(
    argv: Sequence[str], cwd: Path, tag: str, logs: Sequence[CappedLog], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], list[LogPump]]:
    """Starts a process as ``spawn``; standard output goes to the first of ``logs``, standard error to the last."""
    pipes = [os.pipe() for _ in logs]
    try:
        child = subprocess.Popen(
            argv, cwd=cwd, env={**child_environment(os.environ, tag), **environment}, stdin=subprocess.DEVNULL,
            stdout=pipes[0][1], stderr=pipes[-1][1], start_new_session=True,
        )  # fmt: skip
    except OSError:
        for (reading, _), log in zip(pipes, logs, strict=True):
            os.close(reading)
            log.close()
        raise
    finally:
        for _, writing in pipes:
            os.close(writing)
    pumps = [LogPump(reading, log) for (reading, _), log in zip(pipes, logs, strict=True)]
    for pump in pumps:
        pump.start()
    return child, pumps
