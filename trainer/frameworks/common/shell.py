"""Reads a user's shell script as the commands it runs: words with their lines and places. Pure; runs no program.

The reader follows assignments, lists, ``export``, conditions, cases, loops over known words, functions, sums, defaults
and the other forms of ``${...}``, and the folder of the script. Values that depend on anything else are marked
(``Word.unknown``), so that only their reader has to refuse them; so are variables that an undecided condition may have
changed. The script has no arguments, and a variable that it does not set is unset. Scripts for another shell are read
as well, in a word (``bash -c "..."``) or a here-document.

Our own parser: the one on PyPI in Python (bashlex) is under the GPL, and the expansions and the places of words, which
an edit of the script needs, would be ours anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import takewhile

from search_spaces.whole_numbers import whole_number
from trainer.frameworks.common import shell_values
from trainer.frameworks.common.script_folder import CUT_OFF, gone_to, own_folder
from trainer.frameworks.common.shell_syntax import (
    Branches,
    Chain,
    Choice,
    Denied,
    Group,
    Loop,
    Part,
    Reader,
    ShellError,
    Simple,
    Statement,
    Statements,
    Token,
    statements,
)

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PARAMETER = re.compile(
    r"(#?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#])(\[[^\]]*\])?"
    r"(?:(:?[-+=?]|##?|%%?|//?|\^\^?|,,?)(.*))?",
    re.DOTALL,
)
_NO_NPU = re.compile(r"torch_npu|npu-smi")
"""Matches a command that asks for an NPU, which fails: no trial runs on one."""
_PROGRAM = re.compile(r"\b(?:accelerate|torchrun|deepspeed|swift|megatron|trl|python3?)\s")
"""Programs that start a training; a word or here-document with one of them may be a script."""
_PASSES_ON = ("cat", "tee", "python", "python3")
"""Commands whose here-document is not a shell script."""
_SUCCEEDS = frozenset(
    {"cd", "pushd", "source", ".", "mkdir", "set", "shopt", "ulimit", "conda", "module", "pip", "sleep"}
)
"""Commands whose success is assumed."""
_OPTION = re.compile(r"--[a-z]|\+{0,2}[a-z_]\w*(?:\.\w+)+=")
"""Matches the beginning of an option or an override."""
_SETTING = ("export", "declare", "local", "readonly", "typeset")
_LONGEST, _MOST_WORDS, _MOST_STEPS, _DEEPEST = 1 << 16, 4096, 20_000, 20
_COUNTED = re.compile(r"\$#|\$\{#\}|\bgetopts\b")
"""Constructs that read the script's own arguments."""
_MAY_BE_GIVEN = ", which the caller may give"
CALLERS = ("$@", "$*")
"""Words that stand for the script's own arguments."""


@dataclass(frozen=True)
class Word:
    """A word of a command."""

    text: str
    line: int
    """Line of the word, counted from 1."""
    start: int = 0
    end: int = 0
    """Index of the end of the word in the script."""
    unknown: str = ""
    """Part of the word that only a shell knows, as written; empty if all is known."""
    listed: str = ""
    """Name of the list that holds the word; empty if the command itself holds it."""


@dataclass(frozen=True)
class Command:
    """A command: its words, and the variables set for it."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Variables exported before the command, or assigned in front of it."""
    folder: str | None = ""
    """Working directory of the command, relative to the start; ``None`` if only a shell knows it."""


@dataclass
class _State:
    variables: dict[str, list[Word]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Statement] = field(default_factory=dict)
    given: list[Word] | None = None
    """Arguments of the running function; ``None`` for the script's own, which are unknown."""
    ended: bool = False
    folder: str | None = ""

    def copy(self) -> _State:
        return replace(
            self, variables=dict(self.variables), exported=set(self.exported), functions=dict(self.functions)
        )

    def become(self, other: _State) -> None:
        self.variables, self.exported, self.functions = other.variables, other.exported, other.functions
        self.ended, self.folder = other.ended, other.folder


def commands(text: str, folder: str = ".", known: Mapping[str, str] | None = None) -> tuple[Command, ...]:
    """Returns every command that the script may run, in order, without assignments.

    Args:
        known: variables of the process that runs the script.

    Raises:
        ShellError: a quote, bracket or statement that is not closed, or a script that repeats itself too often.
    """
    state = _State({name: [Word(value, 0)] for name, value in (known or {}).items()})
    runner = _Runner(folder, state)
    runner.run(statements(text))
    return tuple(runner.found)


def assigned(word: Word) -> tuple[str, Word]:
    """Returns (name, value) of an assignment; an empty name for any other word."""
    found = _ASSIGNED.fullmatch(word.text)
    return (found[1], replace(word, text=found[2])) if found else ("", word)


@dataclass
class _Piece:
    """Expansion of a part of a word."""

    text: str = ""
    unknown: str = ""
    quoted: bool = True
    several: list[Word] | None = None
    """Words of a list."""


class _Runner:
    """Follows a script; a status is true, false, or ``None`` if only a shell knows it."""

    def __init__(self, folder: str, state: _State, steps: list[int] | None = None, depth: int = 0) -> None:
        self.found: list[Command] = []
        self.printed: list[str] | None = []
        """Output of ``echo``; ``None`` if unknown."""
        self._folder, self._state = folder, state
        self._steps, self._depth, self._line = steps if steps is not None else [0], depth, 1

    def run(self, body: Statements) -> bool | None:
        """Runs the statements; returns the status of the last."""
        status: bool | None = True
        for statement in body:
            if self._state.ended:
                break
            self._steps[0] += 1
            if self._steps[0] > _MOST_STEPS:
                raise ShellError(self._line, "the script repeats itself too often to be read")
            status = self._one(statement)
        return status

    def _one(self, statement: Statement) -> bool | None:
        if isinstance(statement, Simple):
            return self._simple(statement)
        if isinstance(statement, Chain):
            return self._chain(statement)
        if isinstance(statement, Branches):
            return self._branches(statement)
        if isinstance(statement, Choice):
            return self._choice(statement)
        if isinstance(statement, Loop):
            return self._loop(statement)
        if isinstance(statement, Group):
            return self._apart(statement.body) if statement.own else self.run(statement.body)
        if isinstance(statement, Denied):
            status = self._one(statement.statement)
            return None if status is None else not status
        self._state.functions[statement.name] = statement.body
        return True

    def _apart(self, body: Statements) -> bool | None:
        """Runs statements in a subshell; their variables do not remain."""
        before = self._state.copy()
        status = self.run(body)
        self._state.become(before)
        return status

    def _maybe(self, choices: Sequence[Statements], why: str) -> None:
        """Runs each of ``choices``, as only a shell knows the choice; variables set differently become unknown."""
        before, ends = self._state.copy(), []
        for body in choices:
            self._state.become(before.copy())
            self.run(body)
            if not self._state.ended:
                ends.append(self._state.copy())
        self.printed = None
        if not ends:
            self._state.ended = True
            return
        self._state.become(ends[0])
        for other in ends[1:]:
            for name in {*self._state.variables, *other.variables}:
                if not _same(self._state.variables.get(name), other.variables.get(name)):
                    self._state.variables[name] = [Word(f"${name}", self._line, unknown=why)]
            self._state.exported |= other.exported
            if other.folder != self._state.folder:
                self._state.folder = None

    def _chain(self, chain: Chain) -> bool | None:
        status: bool | None = True
        done = 0
        for at, ((sign, statement), written) in enumerate(zip(chain.links, chain.written, strict=True)):
            if at < done or (sign == "&&" and status is False) or (sign == "||" and status is True):
                continue
            if sign in ("&&", "||") and status is None:
                together = list(takewhile(lambda link: link[0] == "&&", chain.links[at + 1 :])) if sign == "&&" else []
                self._maybe(((statement, *(each for _, each in together)), ()), written)
                done = at + 1 + len(together)
            elif sign == "|" or (not sign and any(other == "|" for other, _ in chain.links)):
                self._apart((statement,))
                status = self.printed = None
            else:
                status = self._one(statement)
            if self._state.ended:
                return status
        return status

    def _branches(self, branches: Branches) -> bool | None:
        possible: list[Statements] = []
        unknown = ""
        for arm in branches.arms:
            status = self.run(arm.condition) if arm.written else True
            if status is False:
                continue
            possible.append(arm.body)
            if status is True:
                break
            unknown = unknown or f"if {arm.written}"
        else:
            possible.append(())
        if not unknown:
            return self.run(possible[0])
        self._maybe(possible, unknown)
        return None

    def _choice(self, choice: Choice) -> bool | None:
        subject = self._value(choice.subject)
        for patterns, body in choice.arms:
            wanted = [self._value(pattern) for pattern in patterns]
            if subject.unknown or any(word.unknown for word in wanted):
                self._maybe([*(body for _, body in choice.arms), ()], choice.written)
                return None
            if any(fnmatchcase(subject.text, word.text) for word in wanted):
                return self.run(body)
        return True

    def _loop(self, loop: Loop) -> bool | None:
        words = [word for token in loop.words for word in self._words(token) if word.text not in CALLERS]
        if loop.name and not any(word.unknown for word in words):
            for word in words:
                self._state.variables[loop.name] = [word]
                self.run(loop.body)
            return True
        if loop.name:
            self._state.variables[loop.name] = [Word(f"${loop.name}", self._line, unknown=loop.written)]
        elif self._state.given is None and _COUNTED.search(loop.written):
            return self._given_by_callers(loop.body)
        self._maybe((loop.body, ()), loop.written)
        return None

    def _given_by_callers(self, body: Statements) -> bool:
        """Skips a loop over the script's own arguments; empty variables that the loop sets become unknown."""
        before, count = self._state.copy(), len(self.found)
        with suppress(ShellError):
            self.run(body)
        del self.found[count:]
        after = self._state.variables
        self._state.become(before)
        for name, words in before.variables.items():
            if not any(word.text or word.unknown for word in words) and not _same(words, after.get(name)):
                self._state.variables[name] = [Word(f"${name}", self._line, unknown=f"${name}{_MAY_BE_GIVEN}")]
        return True

    def _simple(self, simple: Simple) -> bool | None:
        tokens = list(simple.words)
        own: dict[str, list[Word]] = {}
        while tokens and tokens[0].name:
            token = tokens.pop(0)
            self._line = token.line
            own[token.name] = self._assignment(token)
        if not tokens:
            self._set(own)
            return True
        self._line = tokens[0].line
        if tokens[0].plain in _SETTING:
            return self._settings(tokens)
        if tokens[0].plain.startswith("(("):
            return self._sum_alone(tokens[0].plain)
        if tokens[0].plain in ("[", "[[", "test"):
            return self._test(tokens)
        words = [word for token in tokens for word in self._words(token)]
        if len(words) > _MOST_WORDS:
            raise ShellError(self._line, f"a command of more than {_MOST_WORDS} words is not read")
        if not words:
            return True
        status = self._command(words, own)
        documents = () if words[0].text in _PASSES_ON else simple.documents
        for place, script in enumerate([*words[1:], *(Word(text, line) for text, line in documents)], 1):
            if _PROGRAM.search(script.text) and re.search(r"\s\S", script.text) and words[0].text != "echo":
                self._within(script, words[:place], own)
        return status

    def _within(self, script: Word, before: Sequence[Word], own: Mapping[str, list[Word]]) -> None:
        """Runs a script for another shell, from a word or a here-document; ``before`` are the words in front of it."""
        kept, first = self._state.copy(), len(self.found)
        self._set({**own, **{name: [word] for name, word in map(assigned, before) if name}})
        self._state.exported |= {*own, *(name for name, _ in map(assigned, before) if name)}
        with suppress(ShellError):
            self.run(statements(script.text, script.line))
        reason = f"what {before[0].text} is given"  # its words have no places in this script
        for at, found in enumerate(self.found[first:], first):
            self.found[at] = replace(
                found, words=tuple(replace(word, listed=word.listed or reason) for word in found.words)
            )
        self._state.become(kept)

    def _command(self, words: list[Word], own: Mapping[str, list[Word]]) -> bool | None:
        name = words[0].text
        if _OPTION.match(name) and self.found and _PROGRAM.search(" ".join(w.text for w in self.found[-1].words)):
            text = f"the command ends here, and {name[:80]} below it belongs to no other"
            raise ShellError(words[0].line - 1, f"{text}; end the line in a backslash, with no space or comment there")
        function = self._state.functions.get(name)
        if function is not None and self._depth < _DEEPEST:
            return self._call(function, words[1:])
        if name in ("exit", "return"):
            # An exit with an error is a check of something that the command line of the tuner may give instead.
            self._state.ended = name == "exit" and (len(words) < 2 or words[1].text == "0")
            return None
        if name in ("true", ":", "false"):
            return name != "false"
        if name == "echo":
            self._print(words[1:])
            return True
        if name == "set" and any(word.text == "--" for word in words):
            at = next(at for at, word in enumerate(words) if word.text == "--")
            self._state.given = [word for word in words[at + 1 :] if word.text not in CALLERS]
        if name == "unset":
            for word in words[1:]:
                self._state.variables.pop(word.text, None)
        if name in ("read", "mapfile", "readarray"):
            for word in words[1:]:
                self._state.variables[word.text] = [Word(f"${word.text}", word.line, unknown=name)]
        exported = {each: self._state.variables[each] for each in self._state.exported if each in self._state.variables}
        environment = {each: value[0] for each, value in {**exported, **own}.items() if value}
        if name.rpartition("/")[2] == "env":
            environment.update(takewhile(lambda pair: pair[0] != "", map(assigned, words[1:])))
        self.found.append(Command(tuple(words), environment, self._state.folder))
        if name in ("cd", "pushd", "popd"):
            to = [word for word in words[1:] if not word.text.startswith("-")]
            known = len(to) == 1 and not to[0].unknown
            self._state.folder = gone_to(to[0].text, self._state.folder) if known else None
        if any(_NO_NPU.search(word.text) for word in words) and not any("main_ppo" in word.text for word in words):
            return False
        self.printed = None
        return True if name in _SUCCEEDS else None

    def _call(self, function: Statement, words: list[Word]) -> bool | None:
        before = self._state.given
        self._state.given, self._depth = [word for word in words if word.text not in CALLERS], self._depth + 1
        if any(word.text in CALLERS for word in words):
            self._state.given = before if len(words) == 1 else self._state.given
        status = self._one(function)
        self._state.given, self._depth = before, self._depth - 1
        return status

    def _print(self, words: Sequence[Word]) -> None:
        unknown = any(word.unknown or word.text in CALLERS for word in words)
        if self.printed is not None:
            self.printed = None if unknown else [*self.printed, " ".join(word.text for word in words)]

    def _settings(self, tokens: Sequence[Token]) -> bool:
        kind, words = tokens[0].plain, tokens[1:]
        options = [token.plain for token in words if token.plain.startswith("-")]
        for token in words:
            name = token.name or token.plain
            if token.name:
                self._set({token.name: self._assignment(token)})
            if name and not name.startswith("-") and (kind == "export" or any("x" in option for option in options)):
                self._state.exported.add(name)
        return True

    def _set(self, values: Mapping[str, list[Word]]) -> None:
        for name, words in values.items():
            if len(words) > _MOST_WORDS:
                raise ShellError(self._line, f"a list of more than {_MOST_WORDS} words is not read")
            self._state.variables[name] = words

    def _assignment(self, token: Token) -> list[Word]:
        before = self._state.variables.get(token.name, []) if token.adds else []
        if token.items is not None:
            return [*before, *(word for item in token.items for word in self._words(item))]
        value = self._value(token)
        if token.adds and before:
            first = before[0]
            value = replace(value, text=self._short(first.text + value.text), unknown=first.unknown or value.unknown)
        return [value, *before[1:]]

    def _sum_alone(self, text: str) -> bool | None:
        for name in shell_values.names_set(text[2:-2]):
            self._state.variables[name] = [Word(f"${name}", self._line, unknown=text)]
        found = self._total(text[2:-2])
        return None if found is None else bool(found)

    def _test(self, tokens: Sequence[Token]) -> bool | None:
        double = tokens[0].plain == "[["
        words: list[str | None] = []
        for token in tokens[1:]:
            found = [self._value(token)] if double else self._words(token)
            words += [None if word.unknown else word.text for word in found]
        if words and words[-1] in ("]", "]]"):
            words.pop()
        return shell_values.holds(words, patterns=double)

    # Words.

    def _value(self, token: Token) -> Word:
        """Returns the token as one assigned value, spaces included."""
        pieces = self._pieces(token.parts)
        text = "".join(" ".join(word.text for word in p.several) if p.several is not None else p.text for p in pieces)
        inner = (word.unknown for p in pieces for word in p.several or () if word.unknown)
        unknown = next((p.unknown for p in pieces if p.unknown), "") or next(inner, "")
        return Word(self._short(text), token.line, token.start, token.end, unknown)

    def _words(self, token: Token) -> list[Word]:
        """Returns the words of a token: none, one or several."""
        if token.name:
            value = self._value(token)
            return [replace(value, text=f"{token.name}={value.text}")]
        found: list[Word] = []
        current: Word | None = None
        plain = Word("", token.line, token.start, token.end)
        written = "".join(part.text for part in token.parts)
        written = f'"{written}"' if any(part.quoted for part in token.parts) else written
        pieces = self._pieces(token.parts)
        if any(piece.several == [] for piece in pieces) and not any(piece.text or piece.several for piece in pieces):
            return []  # a list without words, between quotes too
        if len(pieces) == 1 and not pieces[0].quoted and pieces[0].unknown == pieces[0].text + _MAY_BE_GIVEN:
            return []
        for piece in pieces:
            for number, word in enumerate(self._fields(piece, plain, written)):
                if number or current is None:
                    found += [current] if current is not None else []
                    current = word
                else:
                    unknown = current.unknown or word.unknown
                    current = replace(word, text=self._short(current.text + word.text), unknown=unknown)
        return found + ([current] if current is not None else [])

    def _fields(self, piece: _Piece, plain: Word, written: str) -> list[Word]:
        """Splits a piece into words: a list's own words, and unquoted text at spaces."""
        if piece.several is not None:
            return [replace(word, listed=word.listed or written) for word in piece.several]
        if piece.quoted or (piece.text and piece.text in (*CALLERS, piece.unknown)):
            return [replace(plain, text=piece.text, unknown=piece.unknown)]
        fields = shell_values.fields(piece.text, piece.unknown)
        listed = written if len(fields) > 1 else ""
        return [replace(plain, text=text, unknown=unknown, listed=listed) for text, unknown in fields]

    def _pieces(self, parts: Sequence[Part]) -> list[_Piece]:
        return [self._expanded(part) if part.expands else _Piece(part.text) for part in parts]

    def _short(self, text: str) -> str:
        if len(text) > _LONGEST:
            raise ShellError(self._line, f"a value of more than {_LONGEST} characters is not read")
        return text

    def _expanded(self, part: Part) -> _Piece:
        written = part.text
        if written.startswith("$(("):
            found = self._total(written[3:-2])
            return _Piece(written, written) if found is None else _Piece(str(found), quoted=part.quoted)
        if written.startswith(("$(", "`")):
            return self._substituted(part)
        if CUT_OFF.fullmatch(written):
            return _Piece(self._folder)
        expression = written[2:-1] if written.startswith("${") else written[1:]
        if written in CALLERS or expression in ("@", "*"):
            given = self._state.given
            return _Piece("$" + expression) if given is None else _Piece(several=list(given))
        return self._parameter(expression, part)

    def _parameter(self, expression: str, part: Part) -> _Piece:
        found = _PARAMETER.fullmatch(expression)
        if found is None:
            return _Piece(part.text, part.text)
        counted, name, index, sign, rest = found[1], found[2], found[3] or "", found[4] or "", found[5] or ""
        words = self._of(name)
        if name == "#" and not expression[1:]:
            return _Piece(str(len(self._state.given or ())))
        if index and index not in ("[@]", "[*]") and words is not None:
            at = whole_number(index[1:-1])
            words = None if at is None else words[at:][:1]
        if counted:
            return self._counted(words, index, part)
        if sign.startswith(":") or sign in ("-", "+", "=", "?"):
            return self._otherwise(name, words, index, sign, rest, part)
        if words is None and index in ("[@]", "[*]"):  # no list can come from outside
            return _Piece(several=[])
        if words is None:
            return _Piece(part.text, part.text)
        if sign:
            pattern = "".join(piece.text for piece in self._pieces(Reader(rest, self._line).value()))
            words = [replace(word, text=shell_values.changed(word.text, sign, pattern)) for word in words]
        return self._held(words, index, part)

    def _held(self, words: list[Word], index: str, part: Part) -> _Piece:
        if index == "[*]" and part.quoted:
            unknown = next((word.unknown for word in words if word.unknown), "")
            return _Piece(self._short(" ".join(word.text for word in words)), unknown)
        if index in ("[@]", "[*]"):
            return _Piece(several=list(words))
        return _Piece(words[0].text, words[0].unknown, part.quoted) if words else _Piece(quoted=part.quoted)

    def _of(self, name: str) -> list[Word] | None:
        """Returns the words of a variable, or of a function's argument; ``None`` if it is unset."""
        if not name.isdecimal():
            return self._state.variables.get(name)
        given, place = self._state.given or [], whole_number(name) or 0
        return [given[place - 1]] if 0 < place <= len(given) else None

    def _counted(self, words: list[Word] | None, index: str, part: Part) -> _Piece:
        if words is None or any(word.unknown for word in words):
            return _Piece(part.text, part.text)
        return _Piece(str(len(words) if index in ("[@]", "[*]") else len(words[0].text if words else "")))

    def _otherwise(self, name: str, words: list[Word] | None, index: str, sign: str, rest: str, part: Part) -> _Piece:
        """Expands ``${NAME:-rest}`` and its kin."""
        empty = words is not None and not any(word.text or word.unknown for word in words)
        there = words is not None and not (empty and sign.startswith(":"))
        if sign.endswith("+") != there:
            return _Piece(quoted=part.quoted) if sign.endswith("+") else self._held(words or [], index, part)
        if sign.endswith("?"):
            return _Piece(part.text, part.text)
        piece = self._instead(rest, part.quoted)
        if sign.endswith("="):
            self._set({name: [Word(piece.text, self._line, unknown=piece.unknown)]})
        return piece

    def _instead(self, rest: str, quoted: bool) -> _Piece:
        """Returns the words after the sign of ``${NAME:-rest}``: one word, or a whole list."""
        reader = Reader(rest, self._line)
        parts = reader.quoted() if quoted and '"' not in rest else reader.value()
        pieces = self._pieces(parts)
        several = next((piece.several for piece in pieces if piece.several is not None), None)
        if several is not None:
            return _Piece(several=several)
        text = self._short("".join(piece.text for piece in pieces))
        unknown = next((piece.unknown for piece in pieces if piece.unknown), "")
        return _Piece(text, unknown, quoted or any(part.quoted for part in parts))

    def _total(self, text: str) -> int | None:
        pieces = self._pieces(Reader(text, self._line).quoted())
        if any(piece.unknown or piece.several is not None for piece in pieces):
            return None

        def value(name: str) -> str | None:
            words = self._of(name)
            return None if words and words[0].unknown else words[0].text if words else ""

        return shell_values.total("".join(piece.text for piece in pieces), value)

    def _substituted(self, part: Part) -> _Piece:
        """Returns the output of a command substitution that consists of ``echo`` and conditions."""
        inside = part.text[2:-1] if part.text.startswith("$(") else part.text[1:-1]
        own = own_folder(inside, self._folder)
        if own is not None:
            return _Piece(own)
        unknown = _Piece(part.text, part.text)
        if self._depth >= _DEEPEST:
            return unknown
        try:
            within = _Runner(self._folder, self._state.copy(), self._steps, self._depth + 1)
            within.run(statements(inside, self._line))
        except ShellError:
            return unknown
        if within.printed is None or not (within.printed or within.found):
            return unknown
        return _Piece(self._short("\n".join(within.printed)), quoted=part.quoted)


def _same(a: list[Word] | None, b: list[Word] | None) -> bool:
    return [(word.text, word.unknown) for word in a or ()] == [(word.text, word.unknown) for word in b or ()]
