"""Launcher and modules of an export for settings that TRL has no key for, or cannot have on a CPU. Pure.

The modules are those of a trial, copied as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from search_spaces.configuration import KnobValue
from search_spaces.native import seam_values
from trainer.child import contract
from trainer.frameworks.common.exported import LAUNCHER
from trainer.frameworks.common.template_files import fill
from trainer.frameworks.trl.key_tables import ENGINE_SEAMS, FLOAT8_SEAMS, TRAINER_SEAMS
from trainer.frameworks.trl.keys import acting, seams

_CHILD = Path(contract.__file__).parent.parent / "frameworks"
_FOLDERS = {"float8": "hf_trainer"}
"""Part -> folder of the child's module, where that is not ``trl``."""
_ENGINE_ON_CPU = "vLLM on a CPU takes the trained weights by a reload, which TRL does not do"
_DEEPSPEED_ON_CPU = "accelerate knows no DeepSpeed on a CPU, so what it asks the machine is answered for it"

_FIRST = ("cpu_deepspeed", "engine")
"""Parts that set what torch, accelerate and vLLM read when they are imported."""


@dataclass(frozen=True)
class Part:
    """One module of a trial's that the launcher uses."""

    name: str
    """Of the child's module; the copy is ``autotune_<name>.py``."""
    seams: Mapping[str, KnobValue]
    """What it is told."""
    why: str = ""
    """A sentence, where it is needed whatever the knobs are."""

    @property
    def file(self) -> str:
        return f"autotune_{self.name}.py"

    @property
    def text(self) -> str:
        folder = _CHILD / _FOLDERS.get(self.name, "trl")
        return (folder / f"{self.name}.py").read_text(encoding="utf-8")


def parts_of(configuration: Mapping[str, KnobValue], device: str) -> tuple[Part, ...]:
    """The modules the configuration needs on ``device``, in the order the launcher uses them; mostly none."""
    acts, given, other = acting(configuration), seams(configuration), seam_values(configuration, "trl")
    found = []
    if device == "cpu" and acts.get("zero_stage"):
        found.append(Part("cpu_deepspeed", {}, _DEEPSPEED_ON_CPU))
    colocated = acts.get("rollout_engine") == "vllm" and acts.get("rollout_mode") != "server"
    if colocated and (device == "cpu" or ENGINE_SEAMS & set(other)):
        engine = {name: value for name, value in given.items() if name in ENGINE_SEAMS}
        found.append(Part("engine", engine, _ENGINE_ON_CPU if device == "cpu" else ""))
    if "precision" in other:
        found.append(Part("float8", {name: value for name, value in given.items() if name in FLOAT8_SEAMS}))
    trainer = {name: value for name, value in given.items() if name in TRAINER_SEAMS and name in other}
    if trainer:
        found.append(Part("seams", trainer))
    return tuple(found)


def files_of(parts: tuple[Part, ...], configuration: Mapping[str, KnobValue], device: str) -> dict[str, str]:
    """The launcher and the modules beside it; nothing without parts."""
    if not parts:
        return {}
    compiles = configuration.get("torch_compile") is True or acting(configuration).get("enforce_eager") is False
    said = {"device": repr(device), "compiles": repr(compiles)}
    first = "".join(fill(__file__, f"launch_{part.name}_first", **said) for part in parts if part.name in _FIRST)
    then = [fill(__file__, f"launch_{part.name}", seams=repr(dict(part.seams)), device=repr(device)) for part in parts]
    launcher = fill(__file__, "launch", first=first, then="\n".join(then))
    return {LAUNCHER: launcher, **{part.file: part.text for part in parts}}
