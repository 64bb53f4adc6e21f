"""A shell script read for its commands, without running any of it: words with their lines and places. Pure.

Understood are words, quotes, continued lines, comments, assignments of plain text (``NAME=value``, ``export``) and
``$NAME`` where the script has assigned it before. What only a shell could answer stays unknown, and is an error only
where a command that is asked for contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ENDS = "\n;&|()"
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}$`\"'\\]*))?\})", re.ASCII)


_OWN_FOLDER = re.compile(
    r'\$\([^()]*(?:\$\()?\s*dirname\s+(?:--\s+)?"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?"?[^$`]*', re.ASCII
)
"""How a script finds the folder it is in."""


class ShellError(ValueError):
    """What cannot be read, and its line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    text: str
    line: int
    start: int
    end: int
    """Where it stands in the script."""
    unknown: str = ""
    """What of it only a shell could answer, such as ``$(date)``."""


@dataclass(frozen=True)
class Command:
    """One command: the variables set for it, and its words."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Exported before, or assigned in front of it."""


def commands(text: str) -> tuple[Command, ...]:
    """Every command of the script, in its order; assignments are no commands of their own.

    Raises:
        ShellError: a quote that is not closed.
    """
    found: list[Command] = []
    known: dict[str, Word] = {}
    exported: dict[str, Word] = {}
    for words in _Reader(text, known).lists():
        own: dict[str, Word] = {}
        while words and (name := _ASSIGNED.match(words[0].text)):
            own[name[1]] = _value(words.pop(0), name.end())
        if not words:
            known.update(own)
            exported.update({name: word for name, word in own.items() if name in exported})
        elif words[0].text == "export":
            for word in words[1:]:
                name = _ASSIGNED.match(word.text)
                told = {name[1]: _value(word, name.end())} if name else {word.text: known.get(word.text, word)}
                known.update(told)
                exported.update(told)
        else:
            found.append(Command(tuple(words), {**exported, **own}))
    return tuple(found)


def _value(word: Word, begin: int) -> Word:
    return Word(word.text[begin:], word.line, word.start, word.end, word.unknown)


class _Reader:
    """Cuts a script into commands; ``known`` may grow between two of them."""

    def __init__(self, text: str, known: Mapping[str, Word]) -> None:
        self._text, self._known = text, known
        self._at, self._line = 0, 1

    def lists(self) -> Iterator[list[Word]]:
        """Words of one command after the other."""
        words: list[Word] = []
        while self._at < len(self._text):
            c = self._text[self._at]
            if c in _ENDS:
                if words:
                    yield words
                words = []
                self._step()
            elif c == "\\" and self._text[self._at + 1 : self._at + 2] == "\n":
                self._step(2)
            elif c.isspace():
                self._step()
            elif c == "#":
                self._skip_comment()
            else:
                words.append(self._word())
        if words:
            yield words

    def _step(self, count: int = 1) -> None:
        after = min(self._at + count, len(self._text))
        self._line += self._text.count("\n", self._at, after)
        self._at = after

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _word(self) -> Word:
        start, line = self._at, self._line
        parts: list[str] = []
        unknown = ""
        while self._at < len(self._text):
            c = self._text[self._at]
            if c.isspace() or c in _ENDS:
                break
            if c == "'":
                parts.append(self._single())
            elif c == '"':
                text, lost = self._double()
                parts.append(text)
                unknown = unknown or lost
            elif c == "\\":
                if self._text[self._at + 1 : self._at + 2] != "\n":
                    parts.append(self._text[self._at + 1 : self._at + 2])
                self._step(2)
            elif c in "$`":
                text, lost = self._substituted()
                parts.append(text)
                unknown = unknown or lost
            else:
                parts.append(c)
                self._step()
        return Word("".join(parts), line, start, self._at, unknown)

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise ShellError(self._line, "a quote (') is not closed")
        text = self._text[self._at + 1 : end]
        self._step(end + 1 - self._at)
        return text

    def _double(self) -> tuple[str, str]:
        begun = self._line
        self._step()
        parts: list[str] = []
        unknown = ""
        while self._at < len(self._text):
            c = self._text[self._at]
            if c == '"':
                self._step()
                return "".join(parts), unknown
            if c == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                parts.append(self._text[self._at + 1 : self._at + 2].replace("\n", ""))
                self._step(2)
            elif c in "$`":
                text, lost = self._substituted()
                parts.append(text)
                unknown = unknown or lost
            else:
                parts.append(c)
                self._step()
        raise ShellError(begun, 'a quote (") is not closed')

    def _substituted(self) -> tuple[str, str]:
        """(What stands for a ``$...``, what of it is not known)."""
        found = _VARIABLE.match(self._text, self._at)
        if found is None:
            return self._substitution()
        self._step(found.end() - self._at)
        word = self._known.get(found[1] or found[2])
        if word is not None:
            return word.text, word.unknown
        return (found[3], "") if found[3] is not None else ("", found[0])

    def _substitution(self) -> tuple[str, str]:
        """Past ``$(...)``, ``${...}`` or a backquoted command; a ``$`` alone is itself."""
        text, begin = self._text, self._at
        pair = {"$(": ")", "${": "}"}.get(text[begin : begin + 2], "`" if text[begin] == "`" else "")
        if not pair:
            self._step()
            return "$", ""
        opener = text[begin + 1] if text[begin] == "$" else ""
        self._step(2 if opener else 1)
        depth = 1
        while self._at < len(text) and depth:
            if text[self._at] == pair:
                depth -= 1
            elif opener and text[self._at] == opener:
                depth += 1
            self._step()
        if depth:
            raise ShellError(text.count("\n", 0, begin) + 1, f"{text[begin : begin + 2]} is not closed")
        told = text[begin : self._at]
        return (".", "") if _OWN_FOLDER.fullmatch(told) else ("", told)
