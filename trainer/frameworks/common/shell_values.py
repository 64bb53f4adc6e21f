"""Evaluates shell expressions that need no program: arithmetic, substrings, tests, and a few outputs. Pure."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

_LONGEST_SUM = 200
"""Longest arithmetic expression, in characters."""
_LARGEST = 2**63
_SIGNS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    ast.Pow: lambda a, b: a ** range(64).index(b), ast.LShift: lambda a, b: a << range(64).index(b),
    ast.RShift: lambda a, b: a >> range(64).index(b), ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_UNARY: Mapping[type, Callable[[int], int]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert
}  # fmt: skip
_NUMBERS: Mapping[str, str] = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
_SET = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")
_FIELD = re.compile(r"(?:\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\}|`[^`]*`|\S)+")
PRINTS = ("echo", "dirname", "realpath", "readlink", "pwd")
"""Commands whose output is known."""


def total(text: str, value: Callable[[str], str | None]) -> int | None:
    """Evaluates ``$((text))``; ``None`` for an unknown name or unsupported arithmetic.

    Args:
        text: with every ``$`` already replaced.
        value: returns the text of a variable; ``None`` if unknown.
    """
    if len(text) > _LONGEST_SUM:
        return None
    written = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or ")).strip()
    try:
        return _sum(ast.parse(written, mode="eval").body, value)
    except (SyntaxError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError):
        return None


def _sum(node: ast.expr, value: Callable[[str], str | None]) -> int:
    match node:
        case ast.Constant(int(number)):
            found = int(number)
        case ast.Name(name):
            known = value(name)
            found = int("unknown" if known is None else known.strip() or "0")
        case ast.BinOp(left, sign, right) | ast.Compare(left, [sign], [right]):
            found = int(_SIGNS[type(sign)](_sum(left, value), _sum(right, value)))
        case ast.UnaryOp(sign, operand):
            found = int(_UNARY[type(sign)](_sum(operand, value)))
        case ast.BoolOp(sign, operands):
            each = [_sum(operand, value) != 0 for operand in operands]
            found = int(all(each) if isinstance(sign, ast.And) else any(each))
        case _:
            raise ValueError("another sum")
    if not -_LARGEST <= found < _LARGEST:
        raise OverflowError("too large")
    return found


def names_set(text: str) -> list[str]:
    """Returns the names of the variables that ``((text))`` sets."""
    return [found[1] or found[2] for found in _SET.finditer(text)]


def changed(text: str, sign: str, pattern: str) -> str:
    """Applies ``${NAME<sign>pattern}`` to ``text``: removes a prefix or suffix, replaces a part, or changes case.

    Args:
        sign: ``#``, ``##``, ``%``, ``%%``, ``/``, ``//``, ``^``, ``^^``, ``,`` or ``,,``.
        pattern: a file pattern; for ``/`` and ``//`` followed by a slash and the replacement.
    """
    if sign[0] in "^,":
        end = len(text) if sign[1:] else 1
        return (text[:end].upper() if sign[0] == "^" else text[:end].lower()) + text[end:]
    if sign[0] == "/":
        wanted, _, instead = pattern.partition("/")
        return text.replace(wanted, instead, -1 if sign[1:] else 1) if wanted else text
    before = sign[0] == "#"
    cuts = [at for at in range(len(text) + 1) if fnmatchcase(text[:at] if before else text[at:], pattern)]
    cut = (max if before == bool(sign[1:]) else min)(cuts, default=0 if before else len(text))
    return text[cut:] if before else text[:cut]


def holds(words: Sequence[str | None], *, patterns: bool) -> bool | None:
    """Tells whether ``[ words ]`` is true; ``None`` if it needs a shell to evaluate.

    Args:
        words: words between the brackets; ``None`` for an unknown value.
        patterns: whether the brackets are double, in which ``==`` compares with a pattern.
    """
    for signs, decided in ((("||", "-o"), True), (("&&", "-a"), False)):
        places = [place for place, word in enumerate(words) if word in signs]
        if places and len(words) > 3:
            parts = [words[start + 1 : end] for start, end in zip([-1, *places], [*places, len(words)], strict=True)]
            each = [holds(part, patterns=patterns) for part in parts]
            return decided if decided in each else None if None in each else not decided
    if len(words) > 1 and words[0] == "!":
        found = holds(words[1:], patterns=patterns)
        return None if found is None else not found
    match words:
        case []:
            return False
        case [str(word)]:
            return bool(word)
        case ["-z" | "-n" as sign, str(word)]:
            return bool(word) == (sign == "-n")
        case [str(left), "=" | "==" | "!=" as sign, str(right)]:
            return (fnmatchcase(left, right) if patterns else left == right) == (sign != "!=")
        case [str(left), str(sign), str(right)] if sign in _NUMBERS:
            compared = total(f"{left} {_NUMBERS[sign]} {right}", lambda _: None)
            return None if compared is None else bool(compared)
    return None


def fields(text: str, unknown: str) -> list[tuple[str, str]]:
    """Splits unquoted text into (word, its unknown part); of several words only expansions have an unknown part."""
    if not unknown:
        return [(word, "") for word in text.split()]
    found = _FIELD.findall(text)
    return [(word, word if set("$`") & set(word) else "") for word in found] if len(found) > 1 else [(text, unknown)]


def printed(name: str, words: Sequence[str], folder: str | None) -> str | None:
    """Returns the output of one of ``PRINTS`` in ``folder``; ``None`` if it needs a shell to evaluate."""
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
