"""Values of Hydra's overrides as text and back. Pure.

The part of Hydra 1.3's override grammar (``hydra/grammar/OverrideParser.g4``) that names one value: no sweeps, no
functions. An interpolation (``${...}``) stays the text it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@%+-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
LONGEST_INT = 4000
"""Most characters of an integer; a longer one stays text, because Python reads at most 4,300 digits."""
_FLOAT = re.compile(
    r"[+-]?([0-9][0-9_]*\.[0-9_]*([eE][+-]?[0-9]+)?|\.[0-9][0-9_]*([eE][+-]?[0-9]+)?|[0-9][0-9_]*[eE][+-]?[0-9]+)"
)
_NOT_A_WORD = re.compile(r"nan|[+-]?inf", re.IGNORECASE)
_NAME = re.compile(r"[^\s=,'\"\[\]{}()]+")


class HydraError(ValueError):
    """A problem with an override; the text has no capital and no full stop."""


def as_hydra(value: Any) -> str:
    """Formats ``value`` as Hydra reads it: numbers, switches, null, text, lists and mappings of these.

    Raises HydraError for a number that is not finite, or a mapping's key that Hydra cannot write.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise HydraError(f"expected a finite number, got {value}")
        return repr(value)
    if isinstance(value, str):
        return value if _is_plain(value) else quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{as_hydra(item)}" for key, item in value.items()) + "}"
    return "[" + ",".join(as_hydra(item) for item in value) + "]"


def quoted(text: str) -> str:
    """Returns ``text`` in single quotes; as in Hydra, backslashes are doubled only before a quote."""
    escaped = re.sub(r"(\\*)'", lambda found: found[1] * 2 + "\\'", text)
    ending = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * ending}'"


def parsed(text: str) -> Any:
    """Parses the value that ``text`` stands for. Raises HydraError for a sweep, a function or no value."""
    value, end = _value(text.strip(), 0, top=True)
    if end != len(text.strip()):
        raise HydraError(f"expected one value, got {text!r}")
    return value


def split(override: str) -> tuple[str, Any]:
    """Splits ``key=value``, also after ``+`` or ``++``, into (dotted key, value). Raises HydraError for other text."""
    name, sign, text = override.partition("=")
    key = name.strip().lstrip("+")
    if not sign or not _NAME.fullmatch(key):
        raise HydraError(f"expected key=value, got {override!r}")
    if key.startswith("~"):
        raise HydraError("a key is taken out, and a trial needs every key; remove it")
    return key, parsed(text)


def override(key: str, value: Any, added: bool = False) -> str:
    """Formats ``key=value``; ``added`` prefixes ``++``, which sets a key whether or not verl's own files have it."""
    return f"{'++' if added else ''}{key}={as_hydra(value)}"


def _is_plain(text: str) -> bool:
    if not _PLAIN.fullmatch(text) or text.lower() in _WORDS:
        return False
    return not (_INT.fullmatch(text) or _FLOAT.fullmatch(text) or _NOT_A_WORD.fullmatch(text))


def _key(key: Any) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key) or key.lower() in _WORDS:
        raise HydraError(f"expected a name as key of a mapping, got {key!r}")
    return key


def _value(text: str, at: int, *, top: bool = False) -> tuple[Any, int]:
    at = _after_spaces(text, at)
    if text[at : at + 1] == "[":
        return _list(text, at + 1)
    if text[at : at + 1] == "{":
        return _mapping(text, at + 1)
    if text[at : at + 1] in ("'", '"'):
        return _quoted(text, at)
    return _bare(text, at, top)


def _list(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _after_spaces(text, at)
    while text[at : at + 1] != "]":
        value, at = _value(text, at)
        found.append(value)
        at = _separator(text, at, "]")
    return found, at + 1


def _mapping(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _after_spaces(text, at)
    while text[at : at + 1] != "}":
        colon = text.find(":", at)
        if colon < 0:
            raise HydraError(f"expected a mapping, got {text!r}")
        key = text[at:colon].strip()
        found[key], at = _value(text, colon + 1)
        at = _separator(text, at, "}")
    return found, at + 1


def _separator(text: str, at: int, closing: str) -> int:
    """Returns the index of the next item, or of the closing bracket."""
    at = _after_spaces(text, at)
    sign = text[at : at + 1]
    if sign == closing:
        return at
    if sign != ",":
        raise HydraError(f"expected a comma or {closing}, got {text!r}")
    return _after_spaces(text, at + 1)


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote, start = text[at], at + 1
    end = start
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise HydraError(f"a quote is not closed in {text!r}")
        slashes = end - len(text[start:end].rstrip("\\")) - start
        if slashes % 2 == 0:
            break
        end += 1
    inside = re.sub(rf"(\\+)({quote}|\Z)", lambda found: found[1][: len(found[1]) // 2] + found[2], text[start:end])
    return inside, end + 1


def _bare(text: str, at: int, top: bool) -> tuple[Any, int]:
    found, depth = "", 0
    while at < len(text):
        sign = text[at]
        if sign == "\\" and text[at + 1 : at + 2] in tuple("()[]{}:=, \t\\"):
            found, at = found + text[at + 1], at + 2
            continue
        if text.startswith("${", at):
            depth, found, at = depth + 1, found + "${", at + 2
            continue
        if depth and sign == "}":
            depth -= 1
        elif not depth and sign in ",]}":
            break
        elif not depth and sign in "([{":
            raise HydraError(f"expected one value, got {text!r}")
        found, at = found + sign, at + 1
    if top and at < len(text):
        raise HydraError(f"expected one value, got several: {text!r}")
    return _primitive(found.strip()), at


def _primitive(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text) and len(text) <= LONGEST_INT:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _after_spaces(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
