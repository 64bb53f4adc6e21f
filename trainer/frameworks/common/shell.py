"""A user's shell script as its commands: words with their lines and places. Pure; runs nothing.

Read are comments, quotes, joined lines, assignments of words and of lists, ``export``, the variables assigned before
(``$NAME``, ``${NAME}``, ``${NAME:-otherwise}``, ``"${NAME[@]}"``) and the folder of the script; redirections are left
out. A word that depends on anything else is marked, so that only who needs it has to refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[@\]|\[\*\])?(?::?-(.*))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRNAME = r'dirname\s+(?:--\s+)?"?\$(?:0|\{(?:0|BASH_SOURCE(?:\[0\])?)\})"?'
_OWN_FOLDER = re.compile(
    rf'\s*(?:{_DIRNAME}|cd\s+(?:--\s+)?"?\$\({_DIRNAME}\s*\)"?\s*(?:>\s*/dev/null(?:\s+2>&1)?\s*)?(?:&&|;)\s*pwd(?:\s+-P)?)\s*'
)
"""How a script finds the folder it is in."""
_PLAIN = re.compile(r"[^\s'\"\\$`()#;|&<>]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\$`]+')
_ENDS = ";|&()"
_STREAMS = "<>"
_SPECIAL = "0123456789#?$!-"
"""What a ``$`` before it makes a value only a shell knows."""
CALLERS = ("$@", "$*")
"""Words that stand for those the script itself is given."""


class ShellError(ValueError):
    """A line that cannot be read, and why; neither begins with a capital nor ends with a stop."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    text: str
    line: int
    """Counted from 1."""
    start: int = 0
    end: int = 0
    """Where it stands in the script."""
    unknown: str = ""
    """What in it only a shell would know, as it was written; it stands in ``text`` too."""
    listed: str = ""
    """How the command names the list that it stands in; empty: it stands in the command itself."""


@dataclass(frozen=True)
class Command:
    """One command: its words, and the variables set for it."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Exported before, or assigned in front of it."""


@dataclass
class _Script:
    folder: str
    variables: dict[str, list[Word]] = field(default_factory=dict)
    exported: dict[str, Word] = field(default_factory=dict)


@dataclass
class _Piece:
    """A part of a word."""

    text: str = ""
    unknown: str = ""
    several: list[Word] | None = None
    """The words it stands for, where it is a list."""


def commands(text: str, folder: str = ".") -> tuple[Command, ...]:
    """Every command of the script, in its order; assignments are no commands of their own.

    Args:
        text: the script.
        folder: that it stands in.

    Raises:
        ShellError: a quote or bracket that is not closed.
    """
    script, found = _Script(folder), []
    reader = _Reader(text, script)
    while not reader.done:
        words, own = reader.command(), {}
        while words and assigned(words[0])[0]:
            name, value = assigned(words.pop(0))
            own[name] = value
        if words and words[0].text == "export":
            _export(words[1:], script)
        elif words:
            found.append(Command(tuple(words), {**script.exported, **own}))
        else:
            script.variables.update({name: [value] for name, value in own.items()})
            script.exported.update({name: value for name, value in own.items() if name in script.exported})
    return tuple(found)


def assigned(word: Word) -> tuple[str, Word]:
    """(Name, what it is set to); no name if it is no assignment."""
    found = _ASSIGNED.fullmatch(word.text)
    return (found[1], replace(word, text=found[3])) if found else ("", word)


def _export(words: list[Word], script: _Script) -> None:
    for word in words:
        name, value = assigned(word)
        if name:
            script.variables[name] = [value]
        if name or script.variables.get(word.text):
            script.exported[name or word.text] = value if name else script.variables[word.text][0]


class _Reader:
    """Reads one command after the other, filling in variables; a list that is assigned is remembered."""

    def __init__(self, text: str, script: _Script) -> None:
        self._text, self._at, self._line, self._script = text, 0, 1, script

    @property
    def done(self) -> bool:
        return self._at >= len(self._text)

    def command(self, closing: str = "") -> list[Word]:
        """The words up to the end of the command, or to ``closing``; none between two ends."""
        words: list[Word] = []
        while not self.done:
            self._skip_spaces(lines=bool(closing))
            sign = self._peek()
            if sign == "#":
                self._skip_comment()
            elif sign in ("", "\n", closing) or (sign in _ENDS and not closing):
                self._take()
                return words
            elif sign in _STREAMS:
                self._skip_stream()
            else:
                words += self._word()
        if closing:
            raise ShellError(self._line, f"expected {closing}")
        return words

    def _word(self) -> list[Word]:
        """One word, or none or several where it is a list of them."""
        start, line = self._at, self._line
        whole, quoted = _Piece(), False
        while not self.done and not self._peek().isspace():
            sign = self._peek()
            if sign == "(" and _ASSIGNED.fullmatch(whole.text):
                self._assign_list(whole.text)
                return []
            if sign in _ENDS + _STREAMS:
                break
            quoted = quoted or sign in "'\""
            piece = self._piece(sign)
            whole.text, whole.unknown = whole.text + piece.text, whole.unknown or piece.unknown
            whole.several = piece.several if piece.several is not None else whole.several
        if self._at == start:
            self._take()  # a bracket within a list
        written = self._text[start : self._at]
        if whole.several is not None:
            return [replace(word, listed=word.listed or written) for word in whole.several]
        if whole.text.isdecimal() and self._peek() in tuple(_STREAMS):
            return []  # the number of a stream
        return [Word(whole.text, line, start, self._at, whole.unknown)] if whole.text or quoted else []

    def _piece(self, sign: str) -> _Piece:
        if sign == "\\":
            self._take()
            taken = self._take()
            return _Piece("" if taken == "\n" else taken)
        if sign == "'":
            return _Piece(self._until("'")[1:-1])
        if sign == '"':
            return self._double()
        if sign == "`":
            written = self._until("`")
            return _Piece(written, written)
        return self._variable() if sign == "$" else _Piece(self._run(_PLAIN))

    def _run(self, plain: re.Pattern[str]) -> str:
        """As many signs as mean nothing but themselves; at least one."""
        found = plain.match(self._text, self._at)
        return self._take(len(found[0]) if found else 1)

    def _assign_list(self, assigned: str) -> None:
        found = _ASSIGNED.fullmatch(assigned)
        self._take()
        if found is not None:
            before = self._script.variables.get(found[1], []) if found[2] else []
            self._script.variables[found[1]] = before + self.command(closing=")")

    def _until(self, quote: str) -> str:
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise ShellError(self._line, f"a quote ({quote}) is not closed")
        return self._take(end + 1 - self._at)

    def _double(self) -> _Piece:
        line, whole = self._line, _Piece()
        self._take()
        while self._peek() != '"':
            if self.done:
                raise ShellError(line, 'a quote (") is not closed')
            if self._peek() == "\\":
                self._take()
                sign = self._take()
                whole.text += "" if sign == "\n" else sign if sign in '$`"\\' else "\\" + sign
                continue
            piece = self._piece(self._peek()) if self._peek() in "$`" else _Piece(self._run(_PLAIN_IN_QUOTES))
            whole.text, whole.unknown = whole.text + piece.text, whole.unknown or piece.unknown
            whole.several = piece.several if piece.several is not None else whole.several
        self._take()
        return whole

    def _variable(self) -> _Piece:
        start = self._at
        self._take()
        if self._peek() == "(":
            inside = self._bracketed("(", ")")[1:-1]
            if _OWN_FOLDER.fullmatch(inside):
                return _Piece(self._script.folder)
            return self._only_a_shell(start)
        if self._peek() == "{":
            known = _VARIABLE.fullmatch(self._bracketed("{", "}")[1:-1])
            return self._value(known[1], bool(known[2]), known[3], start) if known else self._only_a_shell(start)
        named = _NAME.match(self._text, self._at)
        if named is not None:
            return self._value(self._take(len(named[0])), False, None, start)
        if self._peek() not in tuple("@*" + _SPECIAL):
            return _Piece("$")
        return _Piece("$" + self._take()) if self._peek() in "@*" else self._special(start)

    def _value(self, name: str, every: bool, otherwise: str | None, start: int) -> _Piece:
        words = self._script.variables.get(name)
        if words is not None and every:
            return _Piece(several=list(words))
        if words:
            return _Piece(words[0].text, words[0].unknown)
        if words is None and otherwise is not None:
            text = otherwise.strip("\"'")
            return _Piece(text, self._text[start : self._at] if "$" in text or "`" in text else "")
        return _Piece() if words is not None else self._only_a_shell(start)

    def _special(self, start: int) -> _Piece:
        self._take()
        return self._only_a_shell(start)

    def _only_a_shell(self, start: int) -> _Piece:
        written = self._text[start : self._at]
        return _Piece(written, written)

    def _bracketed(self, opening: str, closing: str) -> str:
        depth = 0
        for place in range(self._at, len(self._text)):
            depth += {opening: 1, closing: -1}.get(self._text[place], 0)
            if depth == 0:
                return self._take(place + 1 - self._at)
        raise ShellError(self._line, f"a ${opening} is not closed")

    def _skip_stream(self) -> None:
        while self._peek() in tuple(_STREAMS + "&"):
            self._take()
        self._skip_spaces(lines=False)
        self._word()

    def _skip_spaces(self, lines: bool) -> None:
        while not self.done:
            if self._text.startswith("\\\n", self._at):
                self._take(2)
            elif self._peek().isspace() and (lines or self._peek() != "\n"):
                self._take()
            else:
                return

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._take((len(self._text) if end < 0 else end) - self._at)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += len(taken)
        self._line += taken.count("\n")
        return taken
