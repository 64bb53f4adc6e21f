"""A case: a folder with ``case.yaml``, which says what is asked and what is right, and the files it is asked about."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

FILE = "case.yaml"
GIVEN = (
    *("rollout_gpus", "rows_per_update", "max_prompt_length", "max_completion_length", "model", "data", "reward"),
    *("space", "set"),
)
"""Options of ``start`` that a case may give beside its configuration."""
ASKS = ("import", "check", "plan", "diagnose")


class CaseError(ValueError):
    """What is wrong with a case, in one sentence that names its file."""


@dataclass(frozen=True)
class Machine:
    """What the case is asked for; nothing of it is there."""

    gpus: int = 1
    nodes: int = 1
    compute_capability: str = "8.0"
    memory_gib: int = 80


@dataclass(frozen=True)
class Case:
    """One question and its right answer."""

    folder: Path
    ask: str
    right: Mapping[str, Any]
    framework: str = "trl"
    input: str = ""
    """File in the folder: a configuration, or the text of a failure."""
    accelerate: str = ""
    server: str = ""
    """File in the folder: the script that starts the rollout server."""
    machine: Machine = field(default_factory=Machine)
    given: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``start`` beside the configuration, of ``GIVEN``."""
    options: tuple[str, ...] = ()
    """Words of the command line after ``space check`` or ``plan``."""
    framework_says: str = ""
    """What the framework's own check answers to the configuration; empty: nothing against it."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the model, by the names of ``ModelFacts``."""
    result: Mapping[str, str] = field(default_factory=dict)
    """The child's own report of a failure: ``reason``, ``message``, ``detail``."""
    stopped: str = ""
    """Why the tuner ended the trial, by the words of ``running.ending.Stop``."""
    phase: str = ""
    """Where the trial was last."""
    silent_s: float = 0.0
    """For how long it had shown no progress."""

    @property
    def text(self) -> str:
        """Of the input. Raises ``CaseError`` if it cannot be read."""
        return self.text_of(self.input)

    def text_of(self, name: str) -> str:
        """Of a file in the folder; empty without a name. Raises ``CaseError`` if it cannot be read."""
        return _text(self.folder / name) if name else ""


def cases_below(folder: Path) -> list[Case]:
    """All cases, in the order of their folders. Raises ``CaseError`` for one that cannot be read, or for none."""
    found = [read(path) for path in sorted(folder.rglob(FILE))]
    if not found:
        raise CaseError(f"{folder}: there is no {FILE} below it")
    return found


def read(path: Path) -> Case:
    """One ``case.yaml``. Raises ``CaseError``."""
    try:
        values = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise CaseError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise CaseError(f"{path}: expected a mapping with ask and right")
    _check_keys(path, "", values, [each.name for each in fields(Case) if each.name != "folder"])
    if values.get("ask") not in ASKS:
        raise CaseError(f"{path}: ask: expected one of {', '.join(ASKS)}, got {values.get('ask')}")
    if not values.get("right"):
        raise CaseError(f"{path}: right: expected a mapping of what is right")
    for key in ("right", "machine", "given", "model", "result"):
        if not isinstance(values.get(key, {}), dict):
            raise CaseError(f"{path}: {key}: expected a mapping")
    machine = dict(values.get("machine", {}))
    _check_keys(path, "machine: ", machine, [each.name for each in fields(Machine)])
    _check_keys(path, "given: ", values.get("given", {}), GIVEN)
    if "compute_capability" in machine:
        machine["compute_capability"] = str(machine["compute_capability"])
    options = tuple(shlex.split(str(values.get("options", ""))))
    return Case(folder=path.parent, **{**values, "machine": Machine(**machine), "options": options})


def _check_keys(path: Path, where: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [key for key in values if key not in known]
    if unknown:
        raise CaseError(f"{path}: {where}unknown key {unknown[0]}; expected {', '.join(known)}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: cannot be read: {error}") from None
