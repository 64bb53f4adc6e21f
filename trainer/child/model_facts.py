"""Resolves a model to a folder, downloaded once, and reads its facts without loading it: sizes from its configuration,
parameters from its weight files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, Dict, Optional

from .contract import ContractError
from .failures import IllegalSettingError, describe

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
AROUND = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken")


def model_folder(model: str, revision: Optional[str] = None, offline: bool = False) -> Path:
    """Returns the folder of ``model``; downloads a hub model if needed.

    Args:
        model: a folder, or a hub id such as ``org/name``.

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


NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "attention_heads": ("num_attention_heads", "n_head", "num_heads"),
    "key_value_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "vocabulary": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "max_sequence_length"),
    "head_size": ("head_dim",),
}
OBJECTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.safetensors.index.json",
)
LARGEST_HEADER = 100_000_000
"""Longest header in bytes; safetensors' own limit."""


def model_facts(model: str) -> Dict[str, Optional[int]]:
    """Returns facts by the names of ``ModelFacts``; ``None`` for an unknown fact.

    Raises OSError or ValueError for an unreadable configuration of the model.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model).to_dict()
    text = config.get("text_config")
    inner: Dict[str, Any] = {**config, **text} if isinstance(text, dict) else config
    facts: Dict[str, Optional[int]] = {name: first_number(inner, keys) for name, keys in NAMES.items()}
    if facts["key_value_heads"] is None:
        facts["key_value_heads"] = facts["attention_heads"]
    if stretched(inner):
        facts["max_positions"] = None
    quantized = config.get("quantization_config") is not None  # its files hold packed values, not parameters
    facts["parameters"] = None if quantized else stored_parameters(Path(model))
    return facts


def stretched(config: Dict[str, Any]) -> bool:
    """Tells whether positions are scaled at run time beyond those of the configuration (as by YaRN)."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    factor = scaling.get("factor") if isinstance(scaling, dict) else None
    return isinstance(factor, (int, float)) and factor > 1


def refuse_broken(folder: Path) -> None:
    """Raises ``ContractError`` for a settings file that is not a JSON object, and for truncated weights."""
    for name in OBJECTS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ContractError("%s cannot be read: %s" % (path, error)) from None
        if not isinstance(value, dict):
            raise ContractError("%s: expected an object with settings, got a %s" % (path, type(value).__name__))
    for path in folder.glob("*.safetensors"):
        shapes(path)


def first_number(config: Dict[str, Any], keys: Any) -> Optional[int]:
    """Returns the value of the first of ``keys`` that holds an integer."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def stored_parameters(folder: Path) -> Optional[int]:
    """Returns the parameter count of ``folder``'s safetensors files (tied weights once); ``None`` without files."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    return sum(int(math.prod(shape)) for path in files for shape in shapes(path).values())


def shapes(path: Path) -> Dict[str, Any]:
    """Reads the tensor shapes of a safetensors file, by name, from its header alone.

    Raises ContractError for another file, or one that ends before its last tensor.
    """
    with path.open("rb") as stream:
        start = stream.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else LARGEST_HEADER + 1
        if size > LARGEST_HEADER:
            raise ContractError("%s is not a safetensors file" % path)
        try:
            header = json.loads(stream.read(size))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            whole = 8 + size + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
            found = {name: entry["shape"] for name, entry in tensors.items()}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise ContractError("%s is not a safetensors file" % path) from None
    there = path.stat().st_size
    if there < whole:
        raise ContractError("%s is cut off: it has %d bytes of %d; download it again" % (path, there, whole))
    return found
