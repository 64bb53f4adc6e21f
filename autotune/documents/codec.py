"""Converts frozen values to canonical JSON text and back without loss.

Text is ASCII with sorted keys, so equal values have equal text and any database can store it. JSON has no NaN or
infinity; they are written as ``{"$float": "nan"}``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

_FLOAT = "$float"
_ESCAPED = "$$"
"""Prefix of an encoded key that starts with ``$``, so that a user's own ``$float`` keeps its meaning."""
_FLOAT_OR_KEY, _HALF = '"$', "\\ud"
"""Substrings of text that pydantic's parser does not restore: an encoded number or key, half of a surrogate pair."""


class CodecError(ValueError):
    """Raised for a value that is not plain data, or a text that does not fit its type; the message names the path."""


def dump(value: Any, *, canonical: bool = True) -> str:
    """Returns the text of a value; unless ``canonical``, mappings keep their order.

    Raises:
        CodecError: the value contains another type, such as a date, a set or a key that is not a string.
    """
    return json.dumps(_plain(value, type(value).__name__), sort_keys=canonical, separators=(",", ":"), allow_nan=False)


def load(shape: Any, text: str) -> Any:
    """Returns the value of type ``shape`` that ``dump`` wrote as ``text``; the shape ``Any`` gives plain data.

    Raises:
        CodecError: ``dump`` did not write ``text`` from a value of this type.
    """
    from pydantic import ValidationError

    try:
        if _FLOAT_OR_KEY in text or _HALF in text:
            return _adapter(shape).validate_python(json.loads(text, object_hook=_restored))
        return _adapter(shape).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = (getattr(shape, "__name__", "value"), *map(str, first["loc"]))
        raise CodecError(f"{': '.join(place)}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None


@cache
def _adapter(shape: Any) -> Any:
    """Builds the decoder of a type, once per type, because thousands of values of one type are read at a time."""
    from pydantic import TypeAdapter

    return TypeAdapter(shape)


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


def _restored(value: dict[str, Any]) -> Any:
    """Decodes an object of ``_plain``, whose values are decoded already."""
    if set(value) == {_FLOAT}:
        return float(value[_FLOAT])
    return {key.removeprefix(_ESCAPED): each for key, each in value.items()}
