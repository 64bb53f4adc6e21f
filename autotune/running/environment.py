"""Allow-list of the tuner's environment variables that a trial receives: those that affect its figures, and no secrets.

An allow-list, because a trial's environment ends up in logs and crash reports. ``HF_TOKEN`` is the one secret passed
on unless ``--env`` names others: gated models cannot be loaded without it. ``PYTHONPATH`` is not passed on: it
would put the tuner's packages, or whatever stands beside them, in front of the training environment's.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence

from autotune.errors import UsageError
from autotune.machine.surroundings import has_name
from trainer.child.contract import TAG_VARIABLE

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
    """Lets the trials of this process's study receive these variables. Raises ``UsageError``: one is not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(f"--env {missing[0]}: there is no such variable in this environment")
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
