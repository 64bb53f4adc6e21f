"""Finds and reads a model's ``config.json`` without the network: a file, a folder, or the hub's local cache."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.forecast.architecture import Architecture, architecture
from autotune.specification.user_input import HUB_ID

CONFIG = "config.json"
LARGEST = 10_000_000
"""Largest configuration file in bytes."""


def model_at(word: str, environ: Mapping[str, str] | None = None) -> Architecture:
    """Returns the architecture of ``--model``: a folder, a ``config.json``, or a hub id in the local cache.

    Raises:
        UsageError: there is no such file, it cannot be read, or it is not of a decoder.
    """
    path = Path(os.path.abspath(os.path.expanduser(word)))
    if path.is_dir():
        path = path / CONFIG
        if not path.is_file():
            raise UsageError(f"{word} is not a model folder: it has no {CONFIG}")
    elif not path.exists() and HUB_ID.fullmatch(word) and not word.startswith((".", "~")):
        path = _cached(word, os.environ if environ is None else environ)
    return architecture(_read(path, word), word)


def _cached(name: str, environ: Mapping[str, str]) -> Path:
    """Returns the newest cached ``config.json`` of a hub id in huggingface_hub's cache. Raises ``UsageError``."""
    home = environ.get("HF_HOME") or os.path.join(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    root = Path(os.path.expanduser(environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))
    folder = root / f"models--{name.replace('/', '--')}"
    found = [p for p in folder.glob(f"snapshots/*/{CONFIG}") if p.is_file()]
    if not found:
        raise UsageError(
            f"{name} is not a folder or file here, and its {CONFIG} is not in the hub's local cache; "
            f"download that one file and give its path with --model"
        )
    return max(found, key=lambda p: p.stat().st_mtime)


def _read(path: Path, word: str) -> Mapping[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{word} cannot be read: {error.strerror or error}") from None
    try:
        found = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{word} is not a model's {CONFIG}")
    return found
