"""Evaluates shell expressions that need no program: sums, the endings of a value, and tests. Pure."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

_LONGEST_SUM = 200
"""Most characters of a sum."""
_LARGEST = 2**63
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    ast.Pow: lambda a, b: a**b if 0 <= b < 64 else _too_large(),
    ast.LShift: lambda a, b: a << b if 0 <= b < 64 else _too_large(),
    ast.RShift: lambda a, b: a >> b if 0 <= b < 64 else _too_large(),
}  # fmt: skip
_COMPARED: Mapping[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt,
    "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip


def _too_large() -> int:
    raise ValueError("too large")


def total(text: str, value: Callable[[str], str | None]) -> int | None:
    """Returns the value of ``$((text))``; ``None`` for an unknown name or an unsupported sum.

    Args:
        text: with every ``$`` already replaced.
        value: returns the text of a variable; ``None`` if unknown.
    """
    if len(text) > _LONGEST_SUM:
        return None
    written = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or ")).strip()
    try:
        found = _sum(ast.parse(written, mode="eval").body, value)
    except (SyntaxError, ValueError, ZeroDivisionError, TypeError, MemoryError, RecursionError):
        return None
    return found if -_LARGEST <= found < _LARGEST else None


def _sum(node: ast.expr, value: Callable[[str], str | None]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        known = value(node.id)
        return int((known or "0").strip()) if known is not None else _too_large()
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        found = _SIGNS[type(node.op)](_sum(node.left, value), _sum(node.right, value))
        return found if abs(found) <= _LARGEST else _too_large()
    if isinstance(node, ast.UnaryOp):
        inner = _sum(node.operand, value)
        return {ast.USub: -inner, ast.UAdd: inner, ast.Not: int(not inner), ast.Invert: ~inner}[type(node.op)]
    if isinstance(node, ast.BoolOp):
        each = [bool(_sum(item, value)) for item in node.values]
        return int(all(each) if isinstance(node.op, ast.And) else any(each))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        return int(_COMPARED[type(node.ops[0])](_sum(node.left, value), _sum(node.comparators[0], value)))
    raise ValueError("another sum")


def changed(text: str, sign: str, pattern: str) -> str:
    """Applies ``${NAME<sign>pattern}`` to ``text``: cuts an ending or beginning, replaces a part, changes case.

    Args:
        sign: ``#``, ``##``, ``%``, ``%%``, ``/``, ``//``, ``^``, ``^^``, ``,`` or ``,,``.
        pattern: a file pattern; for ``/`` and ``//`` followed by a slash and the replacement.
    """
    if sign in ("^^", ",,"):
        return text.upper() if sign == "^^" else text.lower()
    if sign in ("^", ","):
        return (text[:1].upper() if sign == "^" else text[:1].lower()) + text[1:]
    if sign in ("/", "//"):
        wanted, _, instead = pattern.partition("/")
        return text.replace(wanted, instead, -1 if sign == "//" else 1) if wanted else text
    ends = range(len(text) + 1)
    if sign.startswith("#"):
        fits = [end for end in ends if fnmatchcase(text[:end], pattern)]
        return text[(max(fits) if sign == "##" else min(fits)) :] if fits else text
    fits = [end for end in ends if fnmatchcase(text[end:], pattern)]
    return text[: (min(fits) if sign == "%%" else max(fits))] if fits else text


def holds(words: Sequence[str | None], *, patterns: bool) -> bool | None:
    """Tells whether ``[ words ]`` holds; ``None`` if only a shell knows.

    Args:
        words: words between the brackets; ``None`` for an unknown value.
        patterns: whether the brackets are double, in which ``==`` compares with a pattern.
    """
    for signs, whole in ((("||", "-o"), any), (("&&", "-a"), all)):
        places = [place for place, word in enumerate(words) if word in signs]
        if places and len(words) > 3:
            parts = [words[start + 1 : end] for start, end in zip([-1, *places], [*places, len(words)], strict=True)]
            return _joined([holds(part, patterns=patterns) for part in parts], whole)
    if len(words) > 1 and words[0] == "!":
        found = holds(words[1:], patterns=patterns)
        return None if found is None else not found
    if len(words) == 1:
        return None if words[0] is None else bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return None if words[1] is None else bool(words[1]) == (words[0] == "-n")
    if len(words) == 3 and None not in words:
        return _compared(*map(str, words), patterns=patterns)
    return False if not words else None


def _joined(parts: Sequence[bool | None], whole: Any) -> bool | None:
    decided = whole is any
    if decided in parts:
        return decided
    return None if None in parts else not decided


def _compared(left: str, sign: str, right: str, *, patterns: bool) -> bool | None:
    if sign in ("=", "==", "!="):
        same = fnmatchcase(left, right) if patterns else left == right
        return same if sign != "!=" else not same
    try:
        return _NUMBERS[sign](int(left), int(right)) if sign in _NUMBERS else None
    except ValueError:
        return None


def names_set(text: str) -> list[str]:
    """Returns the variables that ``((text))`` sets."""
    return [
        found[0]
        for found in _NAME.finditer(text)
        if re.match(r"\s*([-+*/%&|^]|<<|>>)?=(?!=)|\s*(\+\+|--)", text[found.end() :])
        or re.search(r"(\+\+|--)\s*\Z", text[: found.start()])
    ]


_FIELD = re.compile(r"(?:\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\}|`[^`]*`|\S)+")


def fields(text: str, unknown: str) -> list[tuple[str, str]]:
    """Splits unquoted text into words, each with its unknown part; of several words only expansions have one."""
    if not unknown:
        return [(word, "") for word in text.split()]
    found = _FIELD.findall(text)
    return [(word, word if set("$`") & set(word) else "") for word in found] if len(found) > 1 else [(text, unknown)]


PRINTS = ("echo", "dirname", "realpath", "readlink", "pwd")
"""Commands whose output is known."""


def printed(name: str, words: Sequence[str], folder: str | None) -> str | None:
    """Returns the output of one of ``PRINTS`` in ``folder``; ``None`` if only a shell knows it."""
    if name == "echo":
        return " ".join(words)
    if name == "pwd":
        return folder if folder and folder.startswith(("/", ".")) else None
    paths = [word for word in words if not word.startswith("-")]
    if len(paths) != 1:
        return None
    if name == "dirname":
        return posixpath.dirname(paths[0].rstrip("/")) or "."
    return posixpath.normpath(posixpath.join(folder or "", paths[0])) if paths[0].startswith("/") or folder else None
