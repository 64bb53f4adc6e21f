"""Converts values of Hydra's overrides to text, and back. Pure.

Supports the part of Hydra 1.3's override grammar (``hydra/grammar/OverrideParser.g4``) that names one value: no sweeps,
no functions. An interpolation (``${...}``) stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@%+-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_INT = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
LONGEST_INT = 4000
"""Longest integer, in characters; a longer one stays text, because Python reads at most 4,300 digits."""
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
    reading = _Reading(text.strip())
    value = reading.value(top=True)
    if reading.at != len(reading.text):
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


class _Reading:
    """Reads values from a text; ``at`` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def _sign(self) -> str:
        """Returns the next character after spaces; empty at the end."""
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def value(self, *, top: bool = False) -> Any:
        """Reads one value; with ``top``, nothing may follow it."""
        sign = self._sign()
        if sign == "[":
            return list(self._items("]", self.value))
        if sign == "{":
            return dict(self._items("}", self._pair))
        return self._quoted(sign) if sign in ("'", '"') else self._bare(top)

    def _items(self, closing: str, read: Callable[[], Any]) -> Iterator[Any]:
        self.at += 1
        while self._sign() != closing:
            yield read()
            if self._sign() == ",":
                self.at += 1
            elif self._sign() != closing:
                raise HydraError(f"expected a comma or {closing}, got {self.text!r}")
        self.at += 1

    def _pair(self) -> tuple[str, Any]:
        start, self.at = self.at, self.text.find(":", self.at) + 1
        if not self.at:
            raise HydraError(f"expected a mapping, got {self.text!r}")
        return self.text[start : self.at - 1].strip(), self.value()

    def _quoted(self, quote: str) -> str:
        start = end = self.at + 1
        while True:
            end = self.text.find(quote, end)
            if end < 0:
                raise HydraError(f"a quote is not closed in {self.text!r}")
            inside = self.text[start:end]
            if (len(inside) - len(inside.rstrip("\\"))) % 2 == 0:
                break
            end += 1
        self.at = end + 1
        return re.sub(rf"(\\+)({quote}|\Z)", lambda sign: sign[1][: len(sign[1]) // 2] + sign[2], inside)

    def _bare(self, top: bool) -> Any:
        found, depth, text = "", 0, self.text
        while self.at < len(text):
            sign = text[self.at]
            if sign == "\\" and text[self.at + 1 : self.at + 2] in tuple("()[]{}:=, \t\\"):
                found, self.at = found + text[self.at + 1], self.at + 2
                continue
            if text.startswith("${", self.at):
                depth, found, self.at = depth + 1, found + "${", self.at + 2
                continue
            if depth and sign == "}":
                depth -= 1
            elif not depth and sign in ",]}":
                break
            elif not depth and sign in "([{":
                raise HydraError(f"expected one value, got {text!r}")
            found, self.at = found + sign, self.at + 1
        if top and self.at < len(text):
            raise HydraError(f"expected one value, got several: {text!r}")
        return _primitive(found.strip())


def _primitive(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text) and len(text) <= LONGEST_INT:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
