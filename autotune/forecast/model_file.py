"""Finds a model's ``config.json``: a file, a folder, the hub's local cache, a table of models, or the hub itself."""

from __future__ import annotations

import difflib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from autotune.errors import UsageError
from autotune.forecast.architecture import Architecture, architecture
from autotune.specification.user_input import HUB_ID
from search_spaces import published

CONFIG = "config.json"
LARGEST = 10_000_000
"""Largest configuration file in bytes."""
PATIENCE_S = 10.0
"""Seconds that the hub has for an answer."""
TABLE = Path(published.__file__).with_name("models.yaml")
"""Sizes of often trained models, from their own configurations."""


def model_at(word: str, environ: Mapping[str, str] | None = None) -> Architecture:
    """Returns the architecture of ``--model``: a folder, a ``config.json``, or a hub id.

    Raises:
        UsageError: there is no such file, it cannot be read, or it is not of a decoder.
    """
    path = Path(os.path.abspath(os.path.expanduser(word)))
    if path.is_dir():
        path = path / CONFIG
        if not path.is_file():
            raise UsageError(f"{word} is not a model folder: it has no {CONFIG}")
    elif not path.exists() and HUB_ID.fullmatch(word) and not word.startswith((".", "~")):
        return architecture(_of_hub(word, os.environ if environ is None else environ), word)
    return architecture(_read(path, word), word)


def _of_hub(name: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the configuration of a hub id: the newest in the local hub cache, else the table's, else the hub's."""
    home = environ.get("HF_HOME") or os.path.join(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    root = Path(os.path.expanduser(environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))
    folder = root / f"models--{name.replace('/', '--')}"
    cached = [p for p in folder.glob(f"snapshots/*/{CONFIG}") if p.is_file()]
    if cached:
        return _read(max(cached, key=lambda p: p.stat().st_mtime), name)
    sizes = yaml.safe_load(TABLE.read_bytes())
    if name in sizes["models"]:
        shape, positions = sizes["models"][name]
        return {**sizes["shapes"][shape], "max_position_embeddings": positions}
    try:
        return _fetched(name, environ)
    except OSError as error:
        hidden = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404)
        reason = getattr(error, "reason", error)
        why = "shows no such model (a gated one needs $HF_TOKEN)" if hidden else f"could not be asked ({reason})"
        near = difflib.get_close_matches(name, sizes["models"], 1)
        meant = f"did you mean {near[0]}; else " if near else ""
        raise UsageError(
            f"{name} is not a folder or file here, nor in the hub's local cache, and the hub {why}; "
            f"{meant}download its {CONFIG} and give that file's path with --model"
        ) from None


def _fetched(name: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Downloads a configuration from the hub. Raises ``OSError`` if the hub does not answer."""
    hub = environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on") or not hub.startswith("http"):
        raise OSError("HF_HUB_OFFLINE or HF_ENDPOINT forbids it")
    asked = urllib.request.Request(f"{hub}/{name}/resolve/main/{CONFIG}")  # noqa: S310 (http, as checked)
    if token := environ.get("HF_TOKEN"):
        asked.add_unredirected_header("Authorization", f"Bearer {token}")  # to the hub alone, wherever it redirects
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:  # noqa: S310
        return _parsed(answer.read(LARGEST + 1), name)


def _read(path: Path, word: str) -> Mapping[str, Any]:
    try:
        with path.open("rb") as stream:
            return _parsed(stream.read(LARGEST + 1), word)
    except OSError as error:
        raise UsageError(f"{word} cannot be read: {error.strerror or error}") from None


def _parsed(data: bytes, word: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{word} is not a model's {CONFIG}")
    return found
