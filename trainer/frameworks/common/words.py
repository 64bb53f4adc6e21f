"""Arguments as the words of a command line, and back. Pure.

ms-swift reads a file the same way: it turns its keys and values into such words first (swift/cli/main.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.knobs.model import show
from trainer.frameworks.common.fields import Field, FieldError

_TRUE, _FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")


def words_of(arguments: Mapping[str, Any]) -> list[str]:
    """``--name value ...``; a mapping becomes JSON, a list several words."""
    found: list[str] = []
    for key, value in arguments.items():
        found.append(f"--{key}")
        found += [_word(item) for item in value] if isinstance(value, list | tuple) else [_word(value)]
    return found


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def as_words(value: Any) -> list[str]:
    """A file's value as ms-swift makes words of it."""
    return [_word(item) for item in value] if isinstance(value, list) else [_word(value)]


def typed(field: Field, words: Sequence[str]) -> Any:
    """Value of the ``words`` after an argument, by its type.

    Raises:
        FieldError: what was expected, and what was found.
    """
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
