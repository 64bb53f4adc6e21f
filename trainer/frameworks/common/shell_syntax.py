"""Parses a shell script into statements: commands, conditions, cases, loops and functions, with their words. Pure.

Expands nothing: a word is made of parts, and a part that needs expansion (``$NAME``, ``${...}``, ``$(...)``,
``$((...))``, a backquote) stays as written. Redirections are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-]")
_FUNCTION = re.compile(r"(?:function[ \t]+)?([A-Za-z_][\w:.-]*)[ \t]*\([ \t]*\)|function[ \t]+([A-Za-z_][\w:.-]*)")
_RESERVED = re.compile(
    r"(if|then|elif|else|fi|case|esac|for|while|until|do|done|function|select|\{|\}|!)(?=[\s;()]|\Z)"
)
_PLAIN = re.compile(r"[^\s'\"\\$`()#;|&<>]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\$`]+')
_HERE = re.compile(r"<<(-?)[ \t]*(['\"]?)([^\s'\"<>|;&()]+)\2")
_ENDS = ";|&()\n"
_DEEPEST = 40
"""Most nested brackets, quotes or statements."""


class ShellError(ValueError):
    """A line that cannot be read, and the reason; the text has no capital and no full stop."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


@dataclass(frozen=True)
class Part:
    """Part of a shell word."""

    text: str
    quoted: bool = False
    expands: bool = False
    """Whether the part begins with an expanding ``$`` or backquote."""


@dataclass(frozen=True)
class Token:
    """A word as written."""

    parts: tuple[Part, ...]
    line: int
    """Line of the word, counted from 1."""
    start: int
    end: int
    name: str = ""
    """Variable of an assignment; ``parts`` are then its value."""
    adds: bool = False
    """Whether the assignment is ``+=``."""
    items: tuple[Token, ...] | None = None
    """Items of an assigned list."""

    @property
    def plain(self) -> str:
        """Text of the token if no part is quoted or expands, else empty."""
        plain = not self.name and all(not part.expands and not part.quoted for part in self.parts)
        return "".join(part.text for part in self.parts) if plain else ""


@dataclass(frozen=True)
class Simple:
    """A command, or assignments without a command."""

    words: tuple[Token, ...]
    documents: Sequence[tuple[str, int]] = ()
    """Here-documents of the command, each with its first line."""


@dataclass(frozen=True)
class Arm:
    """A branch of ``if`` with its condition; of ``else`` without one."""

    condition: Statements
    body: Statements
    written: str
    """The condition, for messages."""


@dataclass(frozen=True)
class Branches:
    """``if``."""

    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Choice:
    """``case``."""

    subject: Token
    arms: tuple[tuple[tuple[Token, ...], Statements], ...]
    written: str


@dataclass(frozen=True)
class Loop:
    """``for``, ``while``, ``until``, ``select``."""

    name: str
    """Variable of the loop; empty for a loop with a condition."""
    words: tuple[Token, ...]
    body: Statements
    written: str


@dataclass(frozen=True)
class Group:
    """Commands in braces or parentheses."""

    body: Statements
    own: bool = False
    """Whether the list stands in brackets, a subshell."""


@dataclass(frozen=True)
class Chain:
    """Commands joined by ``&&``, ``||`` and ``|``; each with the sign before it."""

    links: tuple[tuple[str, Statement], ...]
    written: tuple[str, ...]
    """Text before each link, for messages."""


@dataclass(frozen=True)
class Denied:
    """Behind ``!``."""

    statement: Statement


@dataclass(frozen=True)
class Function:
    """The definition of a shell function."""

    name: str
    body: Statement


Statement = Simple | Branches | Choice | Loop | Group | Chain | Denied | Function
Statements = tuple[Statement, ...]


def statements(text: str, line: int = 1) -> Statements:
    """Parses the script's statements in order; ``line`` is the number of the first line.

    Raises:
        ShellError: a quote, a bracket or a statement that is not closed.
    """
    return Reader(text, line).script()


class Reader:
    """Reads a text from its beginning to its end."""

    def __init__(self, text: str, line: int = 1) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._breaks = [place for place, sign in enumerate(text) if sign == "\n"]
        self._first = line
        self._documents: list[tuple[str, bool, list[tuple[str, int]]]] = []

    def script(self) -> Statements:
        """Parses all statements of a script; a closing word or bracket without an opening is skipped."""
        found: list[Statement] = []
        while self._at < len(self._text):
            found += self._list()
            if self._at < len(self._text):
                reserved = _RESERVED.match(self._text, self._at)
                self._at += len(reserved[0]) if reserved else 1
        return tuple(found)

    def value(self) -> tuple[Part, ...]:
        """Parses the whole text as the parts of one word, spaces included."""
        parts: list[Part] = []
        while self._at < len(self._text):
            parts += self._parts(re.compile(r"[^'\"\\$`]+"))
        return tuple(parts)

    def quoted(self) -> tuple[Part, ...]:
        """Parses the whole text as if it stood between double quotes."""
        parts: list[Part] = []
        while self._at < len(self._text):
            parts += self._in_double()
        return tuple(parts)

    def _line(self) -> int:
        return self._first + bisect_right(self._breaks, self._at - 1)

    def _error(self, text: str) -> ShellError:
        return ShellError(self._line(), text)

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _reserved(self) -> str:
        found = _RESERVED.match(self._text, self._at)
        return found[1] if found else ""

    def _nested(self, read: Callable[[], Statement]) -> Statement:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("it is nested too deeply to be read")
        found = read()
        self._depth -= 1
        return found

    def _list(self) -> Statements:
        """Parses statements up to the end of the enclosing one."""
        found: list[Statement] = []
        while True:
            self._skip(lines=True)
            if self._at >= len(self._text) or self._peek() == ")" or self._peek(2) in (";;", ";&"):
                return tuple(found)
            if self._peek() in (";", "&", "|"):
                self._at += 1
                continue
            if self._reserved() in ("then", "elif", "else", "fi", "esac", "do", "done", "}"):
                return tuple(found)
            found.append(self._nested(self._chain))

    def _chain(self) -> Statement:
        links: list[tuple[str, Statement]] = []
        written: list[str] = []
        sign, start = "", self._at
        while True:
            links.append((sign, self._statement()))
            written.append(" ".join(self._text[start : self._at].split()))
            self._skip(lines=False)
            sign = next((sign for sign in ("&&", "||", "|") if self._text.startswith(sign, self._at)), "")
            if not sign:
                break
            self._at += len(sign) + (self._text.startswith("|&", self._at))
            self._skip(lines=True)
        if len(links) == 1:
            return links[0][1]
        return Chain(tuple(links), ("", *written[:-1]))

    def _statement(self) -> Statement:
        word = self._reserved()
        if word == "!":
            self._at += 1
            self._skip(lines=False)
            return Denied(self._nested(self._statement))
        known: dict[str, Callable[[], Statement]] = {
            "if": self._if, "case": self._case, "for": self._for, "select": self._for, "while": self._while,
            "until": self._while, "{": self._braces,
        }  # fmt: skip
        if word in known:
            return self._closed(self._nested(known[word]))
        if self._peek() == "(" and self._peek(2) != "((":
            return self._closed(self._nested(self._brackets))
        function = _FUNCTION.match(self._text, self._at)
        if function is not None:
            self._at = function.end()
            self._skip(lines=True)
            return Function(function[1] or function[2], self._nested(self._statement))
        return self._simple()

    def _closed(self, statement: Statement) -> Statement:
        """Skips the redirections after ``statement`` and returns it."""
        while True:
            self._skip(lines=False)
            stream = re.compile(r"[0-9]*(?=[<>])").match(self._text, self._at)
            if stream is None:
                return statement
            self._at = stream.end()
            self._redirection([])

    def _expect(self, word: str) -> None:
        self._skip(lines=True)
        if not (self._reserved() == word or (word == ")" and self._peek() == ")")):
            raise self._error(f"expected {word}")
        self._at += len(word)

    def _if(self) -> Statement:
        arms: list[Arm] = []
        while self._reserved() in ("if", "elif"):
            self._at += len(self._reserved())
            start = self._at
            condition = self._list()
            written = " ".join(self._text[start : self._at].strip(" \n;").split())
            self._expect("then")
            arms.append(Arm(condition, self._list(), written))
        if self._reserved() == "else":
            self._at += len("else")
            arms.append(Arm((), self._list(), ""))
        self._expect("fi")
        return Branches(tuple(arms))

    def _case(self) -> Statement:
        start = self._at
        self._at += len("case")
        self._skip(lines=True)
        subject = self._word()
        written = self._text[start : self._at]
        self._skip(lines=True)
        self._at += len("in") if self._peek(2) == "in" else 0
        arms: list[tuple[tuple[Token, ...], Statements]] = []
        while True:
            self._skip(lines=True)
            if self._reserved() == "esac" or self._at >= len(self._text):
                break
            patterns: list[Token] = []
            while self._peek() not in (")", ""):
                self._at += 1 if self._peek() in "(|&;<>" else 0
                self._skip(lines=True)
                if self._peek() not in tuple(")(|&;<>") and self._peek():
                    patterns.append(self._word())
                self._skip(lines=True)
            self._at += 1
            arms.append((tuple(patterns), self._list()))
            self._at += 2 if self._peek(2) in (";;", ";&") else 0
        self._expect("esac")
        return Choice(subject, tuple(arms), written)

    def _for(self) -> Statement:
        start = self._at
        self._at += len(self._reserved())
        self._skip(lines=False)
        name = _NAME.match(self._text, self._at)
        words: tuple[Token, ...] = ()
        if self._peek(2) == "((":
            self._at = self._close(self._at + 2, "))", False)
            name = None
        elif name is not None:
            self._at = name.end()
            self._skip(lines=True)
            if self._text.startswith("in", self._at):
                self._at += len("in")
                words = self._simple().words
        written = " ".join(self._text[start : self._at].split())
        return Loop(name[0] if name else "", words, self._body(), written)

    def _while(self) -> Statement:
        start = self._at
        self._at += len(self._reserved())
        self._list()
        written = " ".join(self._text[start : self._at].strip(" \n;").split())
        return Loop("", (), self._body(), written)

    def _body(self) -> Statements:
        self._skip(lines=True)
        while self._peek() == ";":
            self._at += 1
            self._skip(lines=True)
        self._expect("do")
        found = self._list()
        self._expect("done")
        return found

    def _braces(self) -> Statement:
        self._at += 1
        body = self._list()
        self._expect("}")
        return Group(body)

    def _brackets(self) -> Statement:
        self._at += 1
        body = self._list()
        self._expect(")")
        return Group(body, own=True)

    def _simple(self) -> Simple:
        """Parses the words up to the end of the command."""
        words: list[Token] = []
        documents: list[tuple[str, int]] = []
        while True:
            self._skip(lines=False)
            sign = self._peek()
            if words and words[0].plain == "[[" and words[-1].plain != "]]" and sign:
                words.append(self._within_test())
            elif sign in ("<", ">") or self._peek(2) == "&>":
                self._redirection(documents)
            elif self._peek(2) == "((" and not words:
                words.append(self._sum())
            elif not sign or sign in _ENDS:
                return Simple(tuple(words), documents)
            else:
                word = self._word()
                if not (word.plain.isdecimal() and self._peek() in ("<", ">")):  # the number of a stream
                    words.append(word)

    def _within_test(self) -> Token:
        """Parses a word of ``[[ ]]``, in which signs that usually end a command do not."""
        start = self._at
        while self._peek() == "\n":
            self._at += 1
        signs = self._peek(2) if self._peek(2) in ("&&", "||") else self._peek() if self._peek() in "()<>|&;" else ""
        if not signs:
            return self._word()
        self._at += len(signs)
        return Token((Part(signs),), self._line(), start, self._at)

    def _sum(self) -> Token:
        start, line = self._at, self._line()
        self._at = self._close(start + 2, "))", False)
        return Token((Part(self._text[start : self._at]),), line, start, self._at)

    def _redirection(self, documents: list[tuple[str, int]]) -> None:
        """Skips a redirection; ``documents`` later receives the text of a here-document."""
        document = _HERE.match(self._text, self._at)
        if document is not None and self._peek(3) != "<<<":
            self._documents.append((document[3], bool(document[1]), documents))
            self._at = document.end()
            return
        while self._peek() in tuple("<>&|") and self._peek():
            self._at += 1
        self._skip(lines=False)
        if self._peek() == "(":
            self._at = self._close(self._at + 1, ")", False)
        elif self._peek() and self._peek() not in _ENDS:
            self._word()

    def _word(self) -> Token:
        start, line = self._at, self._line()
        assignment = _ASSIGNMENT.match(self._text, self._at)
        parts: list[Part] = []
        if assignment is not None:
            self._at = assignment.end()
            if self._peek() == "(":
                items = self._items()
                return Token((), line, start, self._at, assignment[1], bool(assignment[2]), items)
        while self._at < len(self._text) and self._peek() not in tuple(" \t\r\f\v" + _ENDS + "<>"):
            parts += self._parts(_PLAIN)
        if self._at == start:
            self._at += 1
        name, adds = (assignment[1], bool(assignment[2])) if assignment else ("", False)
        return Token(tuple(parts), line, start, self._at, name, adds)

    def _items(self) -> tuple[Token, ...]:
        self._at += 1
        items: list[Token] = []
        while True:
            self._skip(lines=True)
            if self._peek() == ")":
                self._at += 1
                return tuple(items)
            if not self._peek():
                raise self._error("expected )")
            if self._peek() in _ENDS + "<>":
                self._at += 1
                continue
            items.append(self._word())

    def _parts(self, plain: re.Pattern[str]) -> list[Part]:
        sign = self._peek()
        if sign == "\\":
            taken = self._text[self._at + 1 : self._at + 2]
            self._at = min(self._at + 2, len(self._text))
            return [Part(taken, quoted=True)] if taken.strip("\n") else []  # at the end of the file it joins nothing
        if sign == "'":
            return [Part(self._single(self._at), quoted=True)]
        if sign == '"':
            self._at += 1
            parts = [Part("", quoted=True)]
            while self._peek() != '"':
                if not self._peek():
                    raise self._error('a quote (") is not closed')
                parts += self._in_double()
            self._at += 1
            return parts
        if sign in "$`":
            return self._expansion(quoted=False)
        found = plain.match(self._text, self._at)
        text = found[0] if found else sign
        self._at += len(text)
        return [Part(text)]

    def _single(self, start: int) -> str:
        end = self._text.find("'", start + 1)
        if end < 0:
            raise self._error("a quote (') is not closed")
        self._at = end + 1
        return self._text[start + 1 : end]

    def _in_double(self) -> list[Part]:
        sign = self._peek()
        if sign == "\\":
            taken = self._text[self._at + 1 : self._at + 2]
            self._at = min(self._at + 2, len(self._text))
            return [Part("" if taken == "\n" else taken if taken in '$`"\\' else "\\" + taken, quoted=True)]
        if sign in "$`":
            return self._expansion(quoted=True)
        found = _PLAIN_IN_QUOTES.match(self._text, self._at)
        text = found[0] if found else sign
        self._at += len(text)
        return [Part(text, quoted=True)]

    def _expansion(self, *, quoted: bool) -> list[Part]:
        """Parses the whole expansion that begins with ``$`` or a backquote."""
        start = self._at
        following = self._text[start + 1 : start + 2]
        if self._peek() == "`":
            end = self._text.find("`", start + 1)
            if end < 0:
                raise self._error("a quote (`) is not closed")
            self._at = end + 1
        elif self._peek(3) == "$((":
            self._at = self._close(start + 3, "))", False)
        elif following in ("(", "{") and following:
            self._at = self._close(start + 2, ")" if following == "(" else "}", quoted and following == "{")
        elif following == "'" and not quoted:  # $'...'
            return [Part(self._single(start + 1), quoted=True)]
        else:
            name = _NAME.match(self._text, start + 1)
            if name is None:
                self._at += 1
                return [Part("$", quoted)]
            self._at = name.end()
        return [Part(self._text[start : self._at], quoted, expands=True)]

    def _close(self, at: int, closing: str, quoted: bool, depth: int = 0) -> int:
        """Returns the index after ``closing``; between double quotes (``quoted``) a single quote is plain text."""
        text = self._text
        if depth > _DEEPEST:
            raise self._error("it is nested too deeply to be read")
        while at < len(text):
            sign = text[at]
            if text.startswith(closing, at):
                return at + len(closing)
            if sign == "\\":
                at += 2
            elif sign == "'" and not quoted:
                at = text.find("'", at + 1) + 1 or len(text)
            elif sign == '"':
                at = self._close(at + 1, '"', True, depth + 1)
            elif text.startswith(("$(", "${"), at):
                at = self._close(at + 2, ")" if text[at + 1] == "(" else "}", quoted and text[at + 1] == "{", depth + 1)
            elif sign == "(" and closing in (")", "))"):
                at = self._close(at + 1, ")", quoted, depth + 1)
            else:
                at += 1
        raise self._error(f"expected {closing}")

    def _skip(self, *, lines: bool) -> None:
        """Skips spaces, comments and joined lines; with ``lines`` also ends of lines."""
        while self._at < len(self._text):
            sign = self._peek()
            if self._text.startswith("\\\n", self._at) or self._text[self._at :] == "\\":
                self._at += 2
            elif sign == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif sign == "\n" and (lines or self._documents):
                if self._documents:
                    self._skip_documents()
                    if not lines:
                        return
                else:
                    self._at += 1
            elif sign != "\n" and sign.isspace():
                self._at += 1
            else:
                return

    def _skip_documents(self) -> None:
        """Skips the here-documents that begin on the next line, up to the last one's end of line."""
        for word, tabs, documents in self._documents:
            first, begins = self._line() + 1, self._at + 1
            while self._at < len(self._text):
                start = self._at + 1
                end = self._text.find("\n", start)
                self._at = len(self._text) if end < 0 else end
                line = self._text[start : self._at]
                if (line.lstrip("\t") if tabs else line) == word:
                    documents.append((self._text[begins:start], first))
                    break
        self._documents = []
