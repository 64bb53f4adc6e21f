"""Reads the user's models, rewards, tasks and prompts from the command line or a configuration."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from search_spaces.frameworks import facts_of

MATH_VERIFY = "math-verify"
GYM = "reasoning-gym"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def model_named(word: str, folder: Path) -> str:
    """Returns the absolute folder that ``word`` names, or the hub id. Raises ``UsageError``: it is neither."""
    path = Path(os.path.abspath(folder / os.path.expanduser(word)))
    if path.exists():
        return str(path)
    if HUB_ID.fullmatch(word) and not word.startswith((".", "~")):
        return word
    raise UsageError(f"there is no model folder {path}, and {word!r} is no hub id such as org/name")


def is_folder(model: str) -> bool:
    """Tells whether a model named by ``model_named`` is a folder on this machine."""
    return os.path.isabs(model)


def task_named(word: str) -> str:
    """Returns the reasoning-gym task of ``reasoning-gym:NAME`` or ``NAME``. Raises ``UsageError`` for other text."""
    source, sign, name = word.rpartition(":")
    if (sign and source != GYM) or not NAME.fullmatch(name):
        raise UsageError(f"--task {word}: expected {GYM}:NAME, such as {GYM}:chain_sum")
    return name


def rewards_named(words: Sequence[str], folder: Path) -> tuple[RewardSpec, ...]:
    """Returns the rewards of ``--reward``, in order. Raises ``UsageError``: bad form, no such file, or a duplicate."""
    found = tuple(_reward_named(word, folder) for word in words)
    if len({(r.kind, r.path, r.name) for r in found}) < len(found):
        raise UsageError(f"--reward names the same reward twice: {', '.join(words)}")
    return found


def _reward_named(word: str, folder: Path) -> RewardSpec:
    if word == MATH_VERIFY:
        return RewardSpec("math_verify", MATH_VERIFY)
    file, sign, name = word.rpartition(":")
    if not sign or not NAME.fullmatch(name):
        raise UsageError(f"--reward {word}: expected FILE.py:FUNCTION or {MATH_VERIFY}")
    path = _file(f"--reward {word}", file, folder)
    return RewardSpec("file", name, str(path), sha256=sha256_of(path), folder=str(folder))


def rewards_configured(
    names: Sequence[str], folder: Path, framework: str = "trl", checkout: str = ""
) -> tuple[RewardSpec, ...]:
    """Returns the rewards that a configuration names. A name without a dot is the framework's own (``checkout``: its
    source folder, if used); a dotted name is an import path from ``folder``."""
    return tuple(_configured(name, folder, framework, checkout) for name in names)


def _configured(name: str, folder: Path, framework: str, checkout: str) -> RewardSpec:
    if "." not in name:
        return RewardSpec(
            framework, name, str(folder) if facts_of(framework).rewards_by_plugin else "", folder=checkout
        )
    module = folder.joinpath(*name.split(".")[:-1])
    files = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    path = next((file for file in files if file.is_file()), None)
    sha256 = "" if path is None else sha256_of(path)
    return RewardSpec("import", name, str(folder), sha256=sha256, folder=str(folder))


def checkout_named(word: str, folder: Path, script: str) -> str:
    """Returns the absolute folder of a framework's source. Raises ``UsageError`` if ``script`` is not in it."""
    path = Path(os.path.abspath(folder / os.path.expanduser(word)))
    if not (path / script).is_file():
        raise UsageError(f"--openr1 {word}: {path} is no checkout of Open-R1: there is no {script} in it")
    return str(path)


def data_named(word: str, folder: Path) -> str:
    """Returns the absolute path of a prompts file. Raises ``UsageError`` if there is none."""
    return str(_file(f"--data {word}", word, folder))


def _file(option: str, word: str, folder: Path) -> Path:
    path = Path(os.path.abspath(folder / os.path.expanduser(word)))
    if not path.is_file():
        other = "; a folder, pipe or device has this name" if path.exists() else ""
        raise UsageError(f"{option}: there is no file {path}{other}")
    return path


def sha256_of(path: str | Path) -> str:
    """Returns the SHA-256 of a file's bytes. Raises ``UsageError`` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
