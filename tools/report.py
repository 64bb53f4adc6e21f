"""Prints the progress of a set-up, and runs its commands. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
import time

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
