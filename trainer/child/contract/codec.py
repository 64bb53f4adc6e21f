"""Converts dataclasses to JSON and back; an error names the path of a value of the wrong type."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import os
import tempfile
import typing
from enum import Enum
from pathlib import Path
from typing import Any, Iterator, Mapping, Union

from .shapes import CycleRecord, NoteRecord, Record, Result, StartupRecord, TrialSpec, WorstCaseRecord
from .words import CONTRACT_VERSION, ContractError


def encode(value: Any) -> Any:
    """Converts a dataclass, enum, path or container to plain JSON values; NaN and infinities become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Path):
        return str(value)
    return value


def dumps(value: Any) -> str:
    """Formats a value as one line of JSON, without NaN or infinity."""
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def write_atomic(path: Path, text: str, durable: bool = True) -> None:
    """Writes ``text`` so that a reader sees the old file or the whole new one (temp, fsync, replace).

    Without ``durable``, does not wait for the disk; a machine that stops may then keep neither file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix="." + path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


def decode(shape: Any, value: Any, where: str = "value") -> Any:
    """Converts plain JSON to the annotated ``shape``; ignores unknown keys, so that an older reader works.

    Raises ContractError with the path of a wrong value and the expected type.
    """
    if shape is Any:
        return value
    origin = typing.get_origin(shape)
    arguments = typing.get_args(shape)
    if origin is Union:
        if value is None and type(None) in arguments:
            return None
        return decode(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError("%s: expected a list, got %r" % (where, value))
        return tuple(decode(arguments[0], v, "%s[%d]" % (where, i)) for i, v in enumerate(value))
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            raise ContractError("%s: expected an object, got %r" % (where, value))
        return {str(k): decode(arguments[1], v, "%s.%s" % (where, k)) for k, v in value.items()}
    if isinstance(shape, type) and issubclass(shape, Enum):
        try:
            return shape(value)
        except ValueError:
            allowed = ", ".join(str(m.value) for m in shape)
            raise ContractError("%s: %r is none of %s" % (where, value, allowed)) from None
    if dataclasses.is_dataclass(shape):
        return _decode_dataclass(shape, value, where)
    return _decode_scalar(shape, value, where)


def _decode_dataclass(shape: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError("%s: expected an object, got %r" % (where, value))
    hints = typing.get_type_hints(shape)
    given = {}
    for f in dataclasses.fields(shape):
        if f.name in value:
            given[f.name] = decode(hints[f.name], value[f.name], "%s.%s" % (where, f.name))
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ContractError("%s.%s: missing" % (where, f.name))
    return shape(**given)


def _decode_scalar(shape: Any, value: Any, where: str) -> Any:
    if shape is float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ContractError("%s: expected a number, got %r" % (where, value))
        if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
            raise ContractError("%s: expected a number, got %r" % (where, value))
        try:
            return float(value)
        except OverflowError:
            raise ContractError("%s: too large a number" % where) from None
    if shape is int and isinstance(value, bool):
        raise ContractError("%s: expected a whole number, got %r" % (where, value))
    if not isinstance(value, shape):
        raise ContractError("%s: expected %s, got %r" % (where, shape.__name__, value))
    return value


RECORD_SHAPES: Mapping[str, Any] = {
    "startup": StartupRecord,
    "cycle": CycleRecord,
    "worst_case": WorstCaseRecord,
    "note": NoteRecord,
}


def parse_record(line: Union[str, bytes]) -> Record:
    """Parses one line of ``metrics.jsonl``.

    Raises:
        ContractError: the line is not a record (torn, binary, another schema, not finite where a
            measurement must be).
    """
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError("not a JSON line: %s" % error) from None
    if not isinstance(value, dict):
        raise ContractError("expected an object, got %s" % type(value).__name__)
    kind = value.get("kind")
    shape = RECORD_SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise ContractError("unknown record kind %r" % (kind,))
    record = decode(shape, value, str(kind))
    _check_figures(record, str(kind))
    if isinstance(record, CycleRecord) and record.seconds <= 0:
        raise ContractError("cycle.seconds: expected a positive number, got %r" % record.seconds)
    return record  # type: ignore[no-any-return]


MAY_BE_NAN = ("loss", "grad_norm", "reward_mean", "logp_mismatch")
"""Figures that training itself can make NaN or infinite; all other figures have to be finite."""


def _check_figures(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ContractError("%s: expected a finite number, got %r" % (where, value))
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ContractError("%s: more than 64 bits" % where)
    if dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            if f.name not in MAY_BE_NAN:
                _check_figures(getattr(value, f.name), "%s.%s" % (where, f.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_figures(item, "%s.%s" % (where, key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_figures(item, where)


def read_spec(path: Path) -> TrialSpec:
    """Reads ``config.json``. Raises ``ContractError`` if the file is not a spec of this version."""
    return _read(TrialSpec, path)  # type: ignore[no-any-return]


def read_result(path: Path) -> Result:
    """Reads a result. Raises ``ContractError`` for a file of another shape, ``FileNotFoundError`` without a file."""
    return _read(Result, path)  # type: ignore[no-any-return]


def _read(shape: Any, path: Path) -> Any:
    decoded = read_json(shape, path)
    if decoded.version != CONTRACT_VERSION:
        raise ContractError("%s: contract version %s, expected %s" % (path, decoded.version, CONTRACT_VERSION))
    return decoded


def read_json(shape: Any, path: Path) -> Any:
    """Reads a file as ``shape``. Raises ``ContractError`` for another shape, ``FileNotFoundError`` without a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ContractError("%s: not JSON: %s" % (path, error)) from None
    return decode(shape, value, path.name)


def iter_complete_lines(data: bytes) -> Iterator[bytes]:
    """Yields the whole lines of ``data``; a last line without a newline is still being written."""
    end = data.rfind(b"\n")
    if end >= 0:
        for line in data[:end].split(b"\n"):
            if line.strip():
                yield line
