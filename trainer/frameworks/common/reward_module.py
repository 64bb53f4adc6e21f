"""Writes the rewards of a study as a module that TRL's script can import, without our code. Pure."""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.child import contract
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.scripts import fill

MODULE = "autotune_reward"
VERIFIER = "autotune_math_verifier.py"
COMPLETION_S = 5.0
"""Seconds for one completion, the same as in a trial."""

_STANDARD = ("contextlib", "functools", "importlib.util", "inspect", "json", "os", "sys")
_FOR_MATH = ("atexit", "select", "subprocess", "time")


@dataclass(frozen=True)
class Rewards:
    """Value of ``reward_funcs``, and the files it needs."""

    names: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Name in the exported folder -> text; empty if TRL and the user's own modules define all rewards."""
    folder: str = ""
    """Working directory of the user's dotted paths; empty if no reward has one."""


def rewards_of(specs: Sequence[RewardSpec]) -> Rewards:
    """Returns every reward under a name that TRL's script can load. Raises ValueError for an unknown kind of reward."""
    names: list[str] = []
    parts: list[str] = []
    files: dict[str, str] = {}
    folder = ""
    for number, spec in enumerate(specs):
        if spec.kind in ("trl", "import"):
            names.append(spec.name)
            folder = folder or (spec.path if spec.kind == "import" else "")
            continue
        name = _free_name(spec, number, names)
        names.append(f"{MODULE}.{name}")
        parts.append(_part(spec, name))
        if spec.kind == "math_verify":
            files[VERIFIER] = (Path(contract.__file__).parent.parent / "math_verifier.py").read_text(encoding="utf-8")
    if parts:
        imports = "\n".join(f"import {module}" for module in _modules(specs))
        imports = imports.replace("\nimport reasoning_gym", "\n\nimport reasoning_gym")
        files[f"{MODULE}.py"] = (
            fill(__file__, "reward_module", imports=imports, rewards="\n\n".join(parts).rstrip("\n")) + "\n"
        )
    return Rewards(tuple(names), files, folder)


def _modules(specs: Sequence[RewardSpec]) -> list[str]:
    kinds = {spec.kind for spec in specs}
    modules = sorted((*_STANDARD, *(_FOR_MATH if "math_verify" in kinds else ())))
    return [*modules, *(["reasoning_gym"] if "reasoning_gym" in kinds else [])]


def _part(spec: RewardSpec, name: str) -> str:
    if spec.kind == "reasoning_gym":
        return fill(__file__, "reasoning_gym", name=name, task=repr(spec.name), options=repr(dict(spec.options)))
    if spec.kind == "file":
        private = "autotune_reward_file_" + hashlib.sha256(spec.path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        words = {"path": repr(spec.path), "function": repr(spec.name), "folder": repr(spec.folder)}
        return fill(__file__, "file_reward", name=name, module=repr(private), **words)
    if spec.kind == "math_verify":
        return fill(__file__, "math_verify", name=name, seconds=repr(COMPLETION_S))
    raise ValueError(f"a reward of kind {spec.kind!r} cannot be exported")


def _free_name(spec: RewardSpec, number: int, names: Sequence[str]) -> str:
    """Returns a free Python name for the reward, its own if possible."""
    usable = spec.name.isidentifier() and not keyword.iskeyword(spec.name) and not spec.name.startswith("_")
    name = spec.name if usable else "reward"
    reserved = {*_STANDARD, *_FOR_MATH, "reasoning_gym", "importlib"}
    return name if f"{MODULE}.{name}" not in names and name not in reserved else f"{name}_{number}"
