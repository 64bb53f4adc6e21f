"""Lists the keys that the installed TRL's GRPO script accepts: a command of ``start.py``, which writes ``result.json``.

``config.json`` is ``{"config": {...}}`` with the keys of a user's file as YAML has them, or ``{}``; with ``"framework":
"ms_swift"`` the keys are those of ``swift rlhf``, each with a list of words. TRL's own parser and dataclasses check
these keys, so that a refusal is known before the launch.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import sys
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .contract import ContractError, FailureReason, Result, RunPaths, dumps, write_atomic
from .failures import IllegalSettingError, classify, memory_pool

GROUPS = {"GRPOConfig": "training", "ModelConfig": "model", "DatasetMixtureConfig": "dataset"}
"""Dataclass -> group; any other dataclass of TRL's script belongs to ``script``."""
PLAIN = (bool, int, float, str)
OTHERS = {"ms_swift": ".frameworks.ms_swift.describe"}
"""Framework -> module that describes it."""


def main(directory: Path) -> Result:
    """Describes TRL's keys; ILLEGAL, with the description, if TRL refuses the given keys.

    ``Result.data``: ``trl`` (version) and ``fields``, name -> ``type`` (``int | none``; words: bool, int, float, str,
    none, dict, list[...], any, object), ``default`` (plain JSON, else null with ``unset`` true), ``group`` (training,
    model, script, dataset) and ``choices`` (empty: any).
    """
    paths = RunPaths(directory)
    try:
        config, framework = read_wanted(paths.config)
        others = OTHERS.get(framework)
        result = describe(config, paths.scratch) if others is None else describe_other(others, config)
    except Exception as error:
        result = classify(error, None)
    write_atomic(paths.result, dumps(result))
    return result


def read_wanted(path: Path) -> Tuple[Optional[Dict[str, Any]], str]:
    """Reads (the user's keys, ``None`` without any; their framework, TRL by default)."""
    wanted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    config = wanted.get("config") if isinstance(wanted, dict) else wanted
    if config is not None and not isinstance(config, dict):
        raise ContractError("%s: expected an object of TRL's keys" % path)
    return config, str(wanted.get("framework", "trl")) if isinstance(wanted, dict) else "trl"


def describe_other(module: str, config: Optional[Dict[str, Any]]) -> Result:
    """Describes another framework, whose ``module`` has its dataclasses and checks the keys."""
    theirs = importlib.import_module(module, __package__)
    found = fields(theirs.shapes())
    for prefix, shape in theirs.others().items():
        found.update({prefix + name: entry for name, entry in fields([shape]).items()})
    data = {**theirs.version(), "fields": found}
    sentence = theirs.refusal(config) if config is not None else None
    if sentence is not None:
        return Result(ok=False, reason=FailureReason.ILLEGAL, message=sentence, data=data)
    return Result(ok=True, data=data)


def describe(config: Optional[Dict[str, Any]], scratch: Path) -> Result:
    """Returns the fields of TRL's configuration, and TRL's verdict on ``config``."""
    keys = dict(config or {})
    for name, value in (keys.pop("env", None) or {}).items():
        os.environ[str(name)] = str(value)  # before the framework is imported, which reads some of it
    data = {"trl": importlib.metadata.version("trl"), "fields": fields(script_parser().dataclass_types)}
    if config is not None:
        sentence = refusal(keys, scratch)
        if sentence is not None:
            return Result(ok=False, reason=FailureReason.ILLEGAL, message=sentence, data=data)
    return Result(ok=True, data=data)


def script_parser() -> Any:
    """Returns the parser of TRL's own GRPO script."""
    from trl.scripts.grpo import make_parser

    return make_parser()


def fields(shapes: Any) -> Dict[str, Dict[str, Any]]:
    """Returns every key of the dataclasses ``shapes``, by name."""
    found: Dict[str, Dict[str, Any]] = {}
    for shape in shapes:
        hints = typing.get_type_hints(shape)
        for field in dataclasses.fields(shape):
            if field.init and not field.name.startswith("_"):
                entry = described(field, hints[field.name])
                found[field.name] = {**entry, "group": GROUPS.get(shape.__name__, "script")}
    return found


def described(field: Any, hint: Any) -> Dict[str, Any]:
    """Returns a key's description, without its group."""
    default, unset = plain_default(field)
    return {
        "type": " | ".join(dict.fromkeys(kinds(hint))),
        "default": default,
        "unset": unset,
        "choices": choices(field, hint),
    }


def kinds(hint: Any) -> Iterator[str]:
    """Yields the type words of an annotation, in order."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            yield from kinds(argument)
    elif origin is typing.Literal:
        yield from ("none" if argument is None else type(argument).__name__ for argument in arguments)
    elif hint is Any:
        yield "any"
    elif hint is type(None):
        yield "none"
    elif origin is list or hint is list:
        yield "list[%s]" % " | ".join(kinds(arguments[0]) if arguments else ("any",))
    elif origin is dict or hint is dict or dataclasses.is_dataclass(hint):
        yield "dict"
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield "str"
    else:
        yield hint.__name__ if hint in PLAIN else "object"


def choices(field: Any, hint: Any) -> List[Any]:
    """Returns the values that TRL allows for a key; empty if it lists none."""
    listed = field.metadata.get("choices")
    if listed is not None:
        return list(listed)
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for option in options:
        if isinstance(option, type) and issubclass(option, Enum):
            return [member.value for member in option]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return []


def plain_default(field: Any) -> Any:
    """Returns (the default as plain JSON; whether there is none, or JSON cannot hold it)."""
    if field.default is not dataclasses.MISSING:
        value = field.default.value if isinstance(field.default, Enum) else field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return None, True
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return None, True
    return value, False


def refusal(keys: Mapping[str, Any], scratch: Path) -> Optional[str]:
    """Returns TRL's own error about ``keys``, in one line; ``None`` if TRL accepts them.

    Unknown keys are ignored, as TRL's own script ignores them. Without a GPU ``use_cpu`` is set.
    """
    import torch
    from trl import get_peft_config, get_quantization_config

    parser = script_parser()
    parser.error = _refuse
    given = {**keys, "output_dir": str(scratch)}
    if not torch.cuda.is_available() or given.get("deepspeed"):
        given["use_cpu"] = True  # with DeepSpeed on a GPU it would ask for the other processes of a launch
    try:
        parser.set_defaults_with_config(**given)
        _, _, model, _ = parser.parse_args_into_dataclasses(args=[], look_for_args_file=False)
        get_peft_config(model)
        get_quantization_config(model)
    except importlib.metadata.PackageNotFoundError as error:
        name = error.name or "a package"
        return "%s is not installed; install with: %s -m pip install %s" % (name, sys.executable, name)
    except Exception as error:
        if memory_pool(error) is not None:
            raise
        return " ".join(str(error).split())[:400] or type(error).__name__
    return None


def _refuse(message: str) -> None:
    """Raises an error instead of argparse's usage text and exit."""
    raise IllegalSettingError(message)
