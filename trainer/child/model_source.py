"""Resolves a model folder or hub id to a folder: downloaded once, then read at the same commit without a network."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Optional

from .failures import IllegalSettingError, describe

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
AROUND = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken")


def model_folder(model: str, revision: Optional[str] = None, offline: bool = False) -> Path:
    """Returns the folder of ``model``; downloads a hub model if needed.

    Args:
        model: a folder, or a hub id such as ``org/name``.
        revision: branch, tag or commit of a hub id.
        offline: use the cache only.

    Raises:
        IllegalSettingError: no such model, or no access to it; the sentence names the remedy.
    """
    if os.path.isdir(model):
        return Path(model)
    if os.path.isabs(model):
        raise IllegalSettingError("there is no model folder %s" % model)
    try:
        folder = _snapshot(model, revision, offline, WEIGHTS[:1])
        if not list(folder.glob(WEIGHTS[0])):
            folder = _snapshot(model, revision, offline, WEIGHTS[1:])
    except Exception as error:  # the hub's client raises its own, requests', OSErrors and ValueErrors
        raise IllegalSettingError(_sentence(model, revision, error)) from error
    if not any(list(folder.glob(pattern)) for pattern in WEIGHTS):
        raise IllegalSettingError("the model %s holds no weights (*.safetensors or pytorch_model*.bin)" % model)
    return folder


def commit_of(folder: Path, model: str) -> Optional[str]:
    """Returns the commit of a snapshot in the hub's cache; ``None`` for a plain folder."""
    return None if os.path.isdir(model) else folder.name


def _snapshot(model: str, revision: Optional[str], offline: bool, weights: Any) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*AROUND, *weights]
    return Path(snapshot_download(model, revision=revision or None, allow_patterns=patterns, local_files_only=offline))


def _sentence(model: str, revision: Optional[str], error: BaseException) -> str:
    kind = type(error).__name__
    name = model + ("@" + revision if revision else "")
    if kind == "GatedRepoError":
        return "the model %s is gated: accept its terms on the hub, and give a token by HF_TOKEN" % name
    if kind in ("RepositoryNotFoundError", "HFValidationError", "RevisionNotFoundError"):
        return "there is no model %s on the hub, nor a folder of that name" % name
    if kind == "LocalEntryNotFoundError":
        reason = "the hub cannot be reached"
        with contextlib.suppress(ImportError):
            from huggingface_hub import constants

            reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else reason
        return "the model %s is not in the cache and %s: give a folder, or download it first" % (name, reason)
    return "the model %s cannot be had: %s" % (name, describe(error))
