"""Converts frozen values to canonical JSON text and back without loss.

Text is ASCII with sorted keys, so equal values have equal text and any database can store it. JSON has no NaN or
infinity; they are written as ``{"$float": "nan"}``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any

from autotune.domain import Configuration

_FLOAT = "$float"
_ESCAPED = "$$"
"""Prefix of an encoded key that starts with ``$``, so that a user's own ``$float`` keeps its meaning."""

_WORDS = {int: "a whole number", str: "text", bool: "true or false", dict: "an object", list: "a list"}

_Decoder = Callable[[Any], Any]


class CodecError(ValueError):
    """Raised for a value that is not plain data, or a text that does not fit its type; the message names the place."""


def dump(value: Any, *, canonical: bool = True) -> str:
    """Returns the text of a value; unless ``canonical``, mappings keep their order.

    Raises:
        CodecError: the value contains another type, such as a date, a set or a key that is no string.
    """
    return json.dumps(_plain(value, type(value).__name__), sort_keys=canonical, separators=(",", ":"), allow_nan=False)


def load(shape: Any, text: str) -> Any:
    """Returns the value of type ``shape`` that ``dump`` wrote as ``text``; the shape ``Any`` gives plain data.

    Raises:
        CodecError: ``dump`` did not write ``text`` from a value of this type.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    return _at(getattr(shape, "__name__", "value"), _decoder(shape), value)


def decode(shape: Any, value: Any) -> Any:
    """Decodes as ``load`` does, from parsed JSON. Raises ``CodecError``."""
    return _decoder(shape)(value)


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(k, where): _plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    raise CodecError(f"{where}: a {type(value).__name__} is not plain data (text, number, true/false, list, mapping)")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise CodecError(f"{where}: the key {key!r} is not text")
    return _ESCAPED + key if key.startswith("$") else key


@cache
def _decoder(shape: Any) -> _Decoder:
    """Builds the decoder of a type, once per type, because thousands of values of one type are read at a time."""
    if shape is Any:
        return _unescaped
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(arguments[1]), _unchanged(arguments[1]))
    if shape is Configuration:
        return _configuration
    if issubclass(shape, Enum):
        return partial(_enum, shape)
    if dataclasses.is_dataclass(shape):
        return _dataclass_decoder(shape)
    return _float if shape is float else partial(_expect, shape)


def _unchanged(shape: Any) -> frozenset[type]:
    """Returns the exact types of JSON values that are values of ``shape`` already. They are not decoded, because there
    are thirty in every cycle."""
    if typing.get_origin(shape) in (typing.Union, types.UnionType):
        return frozenset().union(*map(_unchanged, typing.get_args(shape)))
    return frozenset({shape} if shape in (bool, int, float, str, types.NoneType) else ())


def _union_decoder(shapes: tuple[Any, ...]) -> _Decoder:
    rest = [s for s in shapes if s is not type(None)]
    decode = _decoder(rest[0]) if len(rest) == 1 else _unescaped
    optional = len(rest) < len(shapes)
    return lambda value: None if value is None and optional else decode(value)


def _tuple_decoder(shapes: tuple[Any, ...]) -> _Decoder:
    if shapes[-1] is Ellipsis:
        one = _decoder(shapes[0])

        def many(value: Any) -> tuple[Any, ...]:
            # Lengths come with every cycle, so whole numbers are let through by the list.
            plain = shapes[0] is int and set(map(type, _expect(list, value))) <= {int}
            return tuple(value) if plain else tuple(_at(i, one, v) for i, v in enumerate(_expect(list, value)))

        return many
    each = [_decoder(s) for s in shapes]

    def fixed(value: Any) -> tuple[Any, ...]:
        if len(_expect(list, value)) != len(each):
            raise CodecError(f"expected {len(each)} values, got {len(value)}")
        return tuple(_at(i, decode, v) for i, (decode, v) in enumerate(zip(each, value, strict=True)))

    return fixed


def _mapping_decoder(decode: _Decoder, unchanged: frozenset[type]) -> _Decoder:
    return lambda value: {
        k.removeprefix(_ESCAPED): v if type(v) in unchanged else _at(k, decode, v)
        for k, v in _expect(dict, value).items()
    }


def _dataclass_decoder(shape: Any) -> _Decoder:
    hints = typing.get_type_hints(shape)
    fields = dataclasses.fields(shape)
    decoders = [(f.name, _decoder(hints[f.name]), _unchanged(hints[f.name])) for f in fields]
    needed = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}

    def decode(value: Any) -> Any:
        if lacking := needed - _expect(dict, value).keys():
            raise CodecError(f"{', '.join(sorted(lacking))} {'is' if len(lacking) == 1 else 'are'} missing")
        given: dict[str, Any] = {}
        name = ""
        try:  # around all fields, not each: 20 of them are read for every cycle
            for name, one, unchanged in decoders:
                if name in value:
                    given[name] = value[name] if type(value[name]) in unchanged else one(value[name])
        except CodecError as error:
            raise CodecError(f"{name}: {error}") from None
        return shape(**given)

    return decode


def _at(place: str | int, decode: _Decoder, value: Any) -> Any:
    try:
        return decode(value)
    except CodecError as error:
        raise CodecError(f"{place}: {error}") from None


def _configuration(value: Any) -> Configuration:
    found = _unescaped(_expect(dict, value))
    if not all(isinstance(v, bool | int | float | str) for v in found.values()):
        raise CodecError("expected an object of knobs and their values")
    return Configuration(found)


def _enum(shape: type[Enum], value: Any) -> Enum:
    try:
        return shape(value)
    except ValueError:
        raise CodecError(f"{value!r} is no {shape.__name__}") from None


def _float(value: Any) -> float:
    if isinstance(value, dict) and set(value) == {_FLOAT}:
        return float(value[_FLOAT])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CodecError(f"expected a number, got {value!r}")
    return float(value)


def _expect(shape: Any, value: Any) -> Any:
    if not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        raise CodecError(f"expected {_WORDS.get(shape, shape.__name__)}, got {value!r}")
    return value


def _unescaped(value: Any) -> Any:
    """Decodes plain data from JSON values: the inverse of ``_plain``."""
    if isinstance(value, list):
        return [_unescaped(v) for v in value]
    if isinstance(value, dict):
        if set(value) == {_FLOAT}:
            return float(value[_FLOAT])
        return {_unkey(k): _unescaped(v) for k, v in value.items()}
    return value


def _unkey(key: str) -> str:
    return key.removeprefix(_ESCAPED)
