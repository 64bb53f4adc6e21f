"""Describes the installed ms-swift's ``swift rlhf`` and ``megatron rlhf``; checks a user's arguments by its parser."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Mapping, Optional, Sequence

PREFIX = "megatron."
"""Prefix of each argument of ``megatron rlhf``."""
_ABSENT = ("megatron", "mcore_bridge", "swift.megatron.utils")


class _StandIn(ModuleType):
    """A fake package in which every name is a class."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a fake package for each package in ``_ABSENT`` and its subpackages."""

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


def shapes() -> List[Any]:
    """Returns the dataclass of ``swift rlhf``, in a list."""
    return [importlib.import_module("swift.arguments").RLHFArguments]


def others() -> Dict[str, Any]:
    """Returns prefix -> dataclass of further arguments: those of ``megatron rlhf``, if readable."""
    found = shape()
    return {} if found is None else {PREFIX: found}


def version() -> Dict[str, str]:
    """Returns ms-swift's version, under its key in the answer."""
    return {"ms_swift": importlib.metadata.version("ms-swift")}


def refusal(keys: Mapping[str, List[str]]) -> Optional[str]:
    """Returns the error of ms-swift's own parser about ``keys`` (argument -> words), in one line; ``None`` if there is
    none.

    Arguments of ``megatron rlhf`` begin with ``PREFIX``. Checks beyond the parser are left to the trial: they load the
    model's configuration, connect to a rollout server, and make folders.
    """
    theirs = bool(keys) and all(key.startswith(PREFIX) for key in keys)
    parser = _parser([others()[PREFIX]] if theirs else shapes())
    start = len(PREFIX) if theirs else 0
    words = [word for key, own in keys.items() for word in ("--" + key[start:], *own)]
    try:
        _, unknown = parser.parse_known_args(words)
    except ValueError as error:
        return " ".join(str(error).split())[:400]
    return "ms-swift does not know %s" % " ".join(unknown) if unknown else None


def _parser(classes: List[Any]) -> Any:
    """Builds the parser of the dataclasses; on errors it raises ``ValueError`` instead of ending the process."""
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    with _patch_get_type_hints():
        parser = HfArgumentParser(classes)

    def error(message: str) -> None:
        raise ValueError(message)

    parser.error = error
    return parser
