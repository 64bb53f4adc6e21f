"""Talking to the person who waits for a set-up, and running what it consists of. Standard library only."""

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
"""Variables with which the training packages warn of nothing while they are imported."""
QUIETLY = (
    "import logging; [logging.getLogger(n).addFilter(lambda r: r.levelno >= logging.ERROR) "
    "for n in ('torchao', 'torch.utils._pytree', 'DeepSpeed')]"
)
"""What there is no variable for. torchao tells of every kernel of a GPU that it cannot load, on a CPU of all of them;
torch of how torchao registers its constants; DeepSpeed that there is no GPU.

A filter, because DeepSpeed sets its logger's level itself. Whoever waits for a set-up can do nothing about any of it;
errors are raised and shown as ever.
"""


def quiet_environment() -> dict[str, str]:
    """Environment of a quiet child: ours, offline, with ``QUIET``; what the caller has set stays."""
    return {**QUIET, **os.environ, "HF_HUB_OFFLINE": "1"}


class SetupError(RuntimeError):
    """The set-up cannot go on; the message is a sentence that says what to do."""


def say(text: str) -> None:
    """Prints to stderr: stdout is for data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def elapsed(started: float) -> str:
    """Since ``started`` (``time.monotonic()``), for a person: ``48 s`` or ``3 min 05 s``."""
    seconds = round(time.monotonic() - started)
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02d} s"


def run(command: list[str], complaint: str, environment: dict[str, str] | None = None) -> None:
    """Run ``command`` to its end with its output shown.

    Raises:
        SetupError: with ``complaint``, if it cannot be started or fails.
    """
    try:
        code = subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        raise SetupError(f"{complaint}: {error}") from error
    if code != 0:
        raise SetupError(f"{complaint} (exit code {code}; its output is above)")
