"""Reads the arguments of ``megatron rlhf``, also without Megatron-Core installed.

Their classes import Megatron-Core and need only names from it. So they are imported with stand-ins for its packages, in
a process that only describes: no other code of ms-swift may run in it afterwards.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Optional, Sequence

PREFIX = "megatron."
"""Prefix of each argument's name."""
_ABSENT = ("megatron", "mcore_bridge", "swift.megatron.utils")


class _StandIn(ModuleType):
    """A package in which every name is a class."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each package of ``_ABSENT`` and all below."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        del path, target
        absent = any(fullname == name or fullname.startswith(name + ".") for name in _ABSENT)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        del module


def shape() -> Any:
    """Returns the dataclass of ``megatron rlhf``; ``None`` if this ms-swift has none that can be read."""
    import swift

    # The package itself would patch torch for Megatron-Core.
    package = ModuleType("swift.megatron")
    package.__path__ = [str(Path(str(swift.__file__)).parent / "megatron")]
    before, finder = dict(sys.modules), _StandIns()
    sys.modules["swift.megatron"] = package
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("swift.megatron.arguments").MegatronRLHFArguments
    except (ImportError, AttributeError):
        return None
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - set(before) | {"swift.megatron"}:
            if name.split(".")[0] in ("megatron", "mcore_bridge") or name.startswith("swift.megatron"):
                del sys.modules[name]
