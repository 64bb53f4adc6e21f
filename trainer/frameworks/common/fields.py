"""Keys of an installed framework, as the child describes them; converts values by the keys' types.

ms-swift first converts the keys and values of a file to words of a command line (swift/cli/main.py); this module does
the same.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.knobs.model import show

_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "dict": "a mapping",
    "none": "nothing",
}
_TRUE, _FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")
_LARGEST = 2**63
_LIST = re.compile(r"list\[(.*)\]")
_ALSO_SWITCHES = frozenset({"scale_rewards", "fsdp"})
"""Keys that are described as text, and that TRL's own code also takes as true or false."""


class FieldError(ValueError):
    """A value of the wrong type; the message gives the expected and the actual value."""


@dataclass(frozen=True)
class Field:
    """One key of TRL's GRPO script."""

    name: str
    type: str
    """Type such as ``int | none``, in the words of the child's ``describe``."""
    default: Any = None
    unset: bool = False
    """Whether the key has no default that plain data can hold."""
    group: str = "training"
    """``training``, ``model``, ``script`` or ``dataset``."""
    choices: tuple[Any, ...] = ()
    """Allowed values; empty for any value."""

    @property
    def kinds(self) -> frozenset[str]:
        """Words of the type; a list's type is one word."""
        found = set(re.findall(r"list\[[^]]*\]|\w+", self.type))
        if "dict" in found:
            found.discard("str")  # JSON for the mapping, or the path of a file, which is read before
        if self.name in _ALSO_SWITCHES:
            found.add("bool")
        return frozenset(found)

    @property
    def expected(self) -> str:
        """The type in words."""
        if self.choices:
            return "one of " + ", ".join(show(choice) for choice in self.choices)
        types = [_in_words(kind) for kind in sorted(self.kinds - {"none"}, key=self.type.find)]
        return " or ".join(types)

    def typed(self, value: Any) -> Any:
        """Converts ``value`` as TRL's own parser does: text by the type, any other value unchanged.

        Raises FieldError for a value of another type.
        """
        found = self._read(value) if isinstance(value, str) else value
        spelled = {str(choice): choice for choice in self.choices}  # as in transformers' parsers, text may be a number
        found = spelled.get(found, found) if isinstance(found, str) else found
        if not any(_fits(found, kind) for kind in self.kinds):
            raise FieldError(f"expected {self.expected}, got {_value_in_words(value)}{self._hint(value)}")
        if self.choices and found is not None and found not in self.choices:
            close = difflib.get_close_matches(str(found)[:80], [str(choice) for choice in self.choices], n=1)
            expected = f"one of {len(self.choices)} words" if close and self.choices[12:] else self.expected
            raise FieldError(f"expected {expected}, got {show(value)}" + "; did you mean ".join(["", *close]))
        return found

    def _read(self, text: str) -> Any:
        kinds = self.kinds
        if "dict" in kinds and text.startswith("{"):
            return _mapping(text)
        if "str" in kinds or any(kind.startswith("list[str") for kind in kinds):
            return text
        if "none" in kinds and "bool" not in kinds and text.lower() in ("none", "null"):
            return None
        for kind, reader in _READERS.items():
            if kind in kinds:
                return reader(text)
        return text

    def _hint(self, value: Any) -> str:
        if isinstance(value, bool) and "str" in self.kinds:
            return f'; YAML takes that word for {show(value)}, so write it in quotes ("{"yes" if value else "no"}")'
        if isinstance(value, int | float) and "str" in self.kinds:
            return "; write it in quotes"
        return ""


def fields_of(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Field]:
    """Returns key -> field, from the child's ``describe`` (``Result.data["fields"]``)."""
    return {key: Field(key, **{**own, "choices": tuple(own.get("choices") or ())}) for key, own in described.items()}


def _number(text: str, kind: Callable[[str], float] = float) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text


def _switch(text: str) -> Any:
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else text


_READERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _switch, "int": lambda text: _number(text, int), "float": _number
}  # fmt: skip


def _mapping(text: str) -> Any:
    """Parses JSON text of a mapping as TRL does; returns any other text unchanged."""
    try:
        found = json.loads(text, parse_constant=int)  # which takes no NaN
        return _plain_words(found) if isinstance(found, dict) else text
    except (ValueError, RecursionError):
        return text


def _plain_words(value: dict[str, Any]) -> dict[str, Any]:
    """Converts numbers and switches written as text inside a JSON mapping, as TrainingArguments does."""
    return {key: _plain_words(item) if isinstance(item, dict) else _plain_word(item) for key, item in value.items()}


def _plain_word(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    if item.lower() in ("true", "false"):
        return item.lower() == "true"
    if item.isdecimal():
        return _number(item, int)
    return _number(item) if item.replace(".", "", 1).isdecimal() else item


def _fits(value: Any, kind: str) -> bool:
    inside = _LIST.fullmatch(kind)
    if inside is not None:
        # One name for a list of names is how TRL's parser leaves it, and what PEFT takes for a pattern.
        alone = isinstance(value, str) and inside[1] == "str"
        return alone or (isinstance(value, list) and all(_fits(item, inside[1]) for item in value))
    if kind in ("any", "object"):
        return kind == "any"
    if kind == "none":
        return value is None
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind in ("int", "float") and isinstance(value, int):
        return abs(value) < _LARGEST
    if kind == "float":
        return isinstance(value, float) and math.isfinite(value)
    return isinstance(value, str if kind == "str" else dict if kind == "dict" else ())


def _in_words(kind: str) -> str:
    inside = _LIST.fullmatch(kind)
    if inside is None:
        return _WORDS.get(kind, "plain data")
    several = {"str": "a list of names", "float": "a list of numbers", "dict": "a list of mappings"}
    return several.get(inside[1], "a list")


def _value_in_words(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" + ("" if not value else f" with {_value_in_words(value[0])}" if len(value) == 1 else "")
    return show(value)


def words_of(arguments: Mapping[str, Any]) -> list[str]:
    """Returns the words ``--name value ...``; a mapping becomes JSON, a list several words."""
    return [word for key, value in arguments.items() for word in (f"--{key}", *as_words(value))]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def as_words(value: Any) -> list[str]:
    """Returns a file's value as ms-swift's command-line words."""
    return [_word(item) for item in value] if isinstance(value, list | tuple) else [_word(value)]


def typed(field: Field, words: Sequence[str]) -> Any:
    """Converts the ``words`` of an argument by its type. Raises FieldError with the expected and the actual value."""
    inner = next((kind[5:-1] for kind in sorted(field.kinds) if kind.startswith("list[")), None)
    if inner is not None:
        return [_one(Field(field.name, inner), word) for word in words]
    if not words and "bool" in field.kinds:
        return True
    if len(words) != 1:
        raise FieldError(f"expected {field.expected}, got {'nothing' if not words else f'{len(words)} words'}")
    return _one(field, words[0])


def _one(field: Field, word: str) -> Any:
    if "dict" in field.kinds and not word.lstrip().startswith("{"):
        return word  # the name of a preset, or the path of a file
    if field.kinds - {"none"} == {"bool"} and word.lower() not in (*_TRUE, *_FALSE):
        raise FieldError(f"expected true or false, got {show(word)}")
    return field.typed(word)
