"""Reads a user's shell script as the commands it runs: words with their lines and positions. Pure; runs no program.

Assignments, lists, ``export``, conditions, cases, loops over known words, functions, arithmetic, ``${...}`` and the
script's folder are evaluated. Values that need anything else are marked (``Word.unknown``), so that only code that
needs them refuses them; variables that an undecided condition may change are marked too. The script has no arguments,
and a variable that it does not set is unset. Scripts for another shell, in a word (``bash -c "..."``) or a
here-document, are read as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import takewhile

from tree_sitter import Node

from search_spaces.knobs.model import whole_number
from trainer.frameworks.common import shell_tree, shell_values
from trainer.frameworks.common.script_folder import gone_to
from trainer.frameworks.common.shell_tree import ShellError, inner_of, line_of, links_of, parsed, text_of, words_in
from trainer.frameworks.common.shell_tree import on_one_line as shown

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PARAMETER = re.compile(
    r"(#?)([A-Za-z_]\w*|[0-9]+|[@*#])(\[[^\]]*\])?(?:(:?[-+=?]|##?|%%?|//?|\^\^?|,,?)(.*))?", re.DOTALL
)
_PLAIN = re.compile(r"\\(.?)|\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-])|[^\\$]+|\$", re.DOTALL)
"""Matches an escaped character, a variable, or text."""
_ALIKE: Mapping[str, str] = {
    "variable_assignments": "variable_assignment", "unset_command": "declaration_command",
    "while_statement": "for_statement", "c_style_for_statement": "for_statement",
}  # fmt: skip
"""Type of node -> type that runs in the same way."""
_NO_NPU = re.compile(r"torch_npu|npu-smi")
"""Matches a command that asks for an NPU; such a command counts as failed, because no trial runs on an NPU."""
_PROGRAM = re.compile(r"\b(?:accelerate|torchrun|deepspeed|swift|megatron|trl|python3?)\s+\S")
"""Matches a program that starts a training; a word or here-document with one may be a script."""
_TELLS = re.compile(r"echo|print|log|info|warn")
"""Matches the name of a command that prints its words."""
_PASSES_ON = ("cat", "tee", "python", "python3")
"""Commands whose here-document is not a shell script."""
_SUCCEEDS = frozenset(
    {"cd", "pushd", "source", ".", "mkdir", "set", "shopt", "ulimit", "conda", "module", "pip", "sleep"}
)
"""Commands whose success is assumed."""
_OPTION = re.compile(r"--[a-z]|\+{0,2}[a-z_]\w*(?:\.\w+)+=")
"""Matches the beginning of an option or an override."""
_MOST_WORK, _A_STEP, _DEEPEST = 1 << 21, 100, 20
"""Maximum characters processed; characters charged for each statement or word; maximum depth of function calls."""
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
    """Line in the script, counted from 1."""
    start: int = 0
    end: int = 0
    """Index of the byte after the word in the script; 0 if the word is not written in the command itself."""
    unknown: str = ""
    """Part of the word that needs a shell to evaluate, as written; empty if all is known."""


@dataclass(frozen=True)
class Command:
    """A command: its words, and the variables set for it."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Variables exported before the command, or assigned in front of it."""
    folder: str | None = ""
    """Working directory of the command, relative to the script's start; ``None`` if it needs a shell to evaluate."""


@dataclass
class _State:
    variables: dict[str, list[Word]]
    exported: dict[str, None] = field(default_factory=dict)
    """Names in the order of the script."""
    functions: dict[str, Node] = field(default_factory=dict)
    given: list[Word] | None = None
    """Arguments of the running function; ``None`` for the script's own, which are unknown."""
    depth: int = 0
    """Depth of nested function calls."""
    ended: bool = False
    folder: str | None = ""

    def copy(self) -> _State:
        return replace(self, variables={**self.variables}, exported={**self.exported}, functions={**self.functions})

    def differs(self, name: str, other: _State) -> bool:
        """Tells whether a variable has another value in ``other``."""
        ours, theirs = (state.variables.get(name, ()) for state in (self, other))
        return [(word.text, word.unknown) for word in ours] != [(word.text, word.unknown) for word in theirs]


def commands(text: str, script: str = "./script", environment: Mapping[str, str] | None = None) -> tuple[Command, ...]:
    """Returns every command that the script may run, in order, without assignments.

    Args:
        environment: variables of the process that runs the script.

    Raises:
        ShellError: a text that is not a shell script, or one that repeats or nests itself too often.
    """
    variables = {"0": script, "BASH_SOURCE": script, **(environment or {})}
    runner = _Runner(_State({name: [Word(value, 0)] for name, value in variables.items()}), [0])
    try:
        runner.run(parsed(text))
    except RecursionError:
        raise ShellError(runner.line, "it is nested too deeply to be read") from None
    return tuple(runner.found)


def assigned(word: Word) -> tuple[str, Word]:
    """Returns (name, value) of an assignment; an empty name for any other word."""
    found = _ASSIGNED.fullmatch(word.text)
    return (found[1], replace(word, text=found[2])) if found else ("", word)


class _Runner:
    """Executes a script symbolically. A status is true, false, or ``None`` if it needs a shell to evaluate.

    A method named after a type of node runs such a node.
    """

    def __init__(self, state: _State, work: list[int]) -> None:
        self.found: list[Command] = []
        self.printed: list[str] | None = []
        """Output of ``echo``; ``None`` if unknown."""
        self.line = 1
        self._state, self._work = state, work

    def run(self, body: Iterable[Node]) -> bool | None:
        """Runs the statements; returns the status of the last."""
        status: bool | None = True
        for node in body:
            if self._state.ended:
                break
            if node.is_named and node.type != "comment":
                self.line = line_of(node)
                self._spend(_A_STEP)
                status = self._chain(links_of(node))
        return status

    def _spend(self, work: int) -> None:
        self._work[0] += work
        if self._work[0] > _MOST_WORK:
            raise ShellError(self.line, "the script repeats itself too often to be read")

    def _one(self, node: Node) -> bool | None:
        name = f"_{_ALIKE.get(node.type, node.type)}"
        method: Callable[[Node], bool | None] = getattr(self, name, self._compound_statement)
        return method(node)

    def _unknown(self, name: str, why: str) -> list[Word]:
        return [Word(f"${name}", self.line, unknown=why)]

    def _maybe(self, choices: Sequence[Sequence[Node]], why: str) -> None:
        """Runs each of ``choices``, as only a shell can choose; variables that differ after them become unknown."""
        before, ends = self._state, []
        for body in choices:
            self._state = before.copy()
            self._spend(len(before.variables))
            self.run(body)
            ends += [] if self._state.ended else [self._state]
        self.printed = None
        self._state = ends[0] if ends else self._state
        for other in ends[1:]:
            for name in {**self._state.variables, **other.variables}:
                if self._state.differs(name, other):
                    self._state.variables[name] = self._unknown(name, why)
            self._state.exported |= other.exported
            if other.folder != self._state.folder:
                self._state.folder = None

    def _choose(self, arms: Iterable[tuple[bool | None, Sequence[Node], str]]) -> bool | None:
        """Runs the first of ``arms`` whose status is true; with unknown statuses, all arms that may be chosen.

        Args:
            arms: each a status, statements, and the condition as written.
        """
        possible: list[Sequence[Node]] = []
        unknown = ""
        for status, body, why in arms:
            possible += [body] if status is not False else []
            unknown = unknown or (why if status is None else "")
            if status:
                break
        else:
            possible.append([])
        if not unknown:
            return self.run(possible[0])
        self._maybe(possible, unknown)
        return None

    def _chain(self, links: Sequence[tuple[str, Node]]) -> bool | None:
        status: bool | None = True
        done = 0
        for at, (sign, statement) in enumerate(links):
            if at < done or (sign == "&&" and status is False) or (sign == "||" and status is True):
                continue
            if sign and status is None:
                behind = takewhile(lambda link: link[0] == "&&", links[at + 1 :] if sign == "&&" else ())
                together = [statement, *(each for _, each in behind)]
                self._maybe([together, []], shown([links[at - 1][1]]))
                done = at + len(together)
            else:
                status = self._one(statement)
            if self._state.ended:
                break
        return status

    # Statements.

    def _compound_statement(self, node: Node) -> bool | None:
        if node.children[0].type != "((":
            return self.run(node.children)
        for name in shell_values.names_set(text_of(node)[2:-2]):
            self._state.variables[name] = self._unknown(name, text_of(node))
        total = self._total(node)
        return None if total is None else bool(total)

    def _subshell(self, node: Node) -> bool | None:
        before = self._state.copy()
        status = self.run(node.children if node.type == "subshell" else [node])
        self._state = before
        return status

    def _pipeline(self, node: Node) -> None:
        for part in node.children:
            self._subshell(part)
        self.printed = None

    def _negated_command(self, node: Node) -> bool | None:
        status = self.run(node.children)
        return None if status is None else not status

    def _function_definition(self, node: Node) -> bool:
        name, body = node.children_by_field_name("name") + node.children_by_field_name("body")
        self._state.functions[text_of(name)] = body
        return True

    def _variable_assignment(self, node: Node) -> bool:
        self._state.variables |= self._assignments(node)
        return True

    def _declaration_command(self, node: Node) -> bool:
        own = self._assignments(node)
        words = self._words(each for each in node.children[1:] if each.type != "variable_assignment")
        own |= {name: [word] for name, word in map(assigned, words) if name}
        names = dict.fromkeys([*own, *(word.text for word in words)])
        self._state.variables |= own
        if node.type == "unset_command":
            self._state.variables = {name: its for name, its in self._state.variables.items() if name not in names}
        elif node.children[0].type == "export" or any(re.match("-.*x", name) for name in names):
            self._state.exported |= names
        return True

    def _if_statement(self, node: Node) -> bool | None:
        def arms() -> Iterator[tuple[bool | None, Sequence[Node], str]]:
            others = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
            for arm in (node, *others):
                inside = [child for child in arm.children if child not in others]
                then = next((at for at, child in enumerate(inside) if child.type == "then"), 0)
                yield self.run(inside[1:then]), inside[then + 1 :], f"if {shown(inside[1:then])}"

        return self._choose(arms())

    def _case_statement(self, node: Node) -> bool | None:
        subject = self._value(node.children_by_field_name("value"))
        arms = []
        for item in node.children:
            if item.type == "case_item":
                patterns = [self._value(each) for each in words_in(item.children_by_field_name("value"))]
                fits = any(fnmatchcase(subject.text, word.text) for word in patterns)
                unknown = subject.unknown or any(word.unknown for word in patterns)
                body = next(at for at, child in enumerate(item.children) if child.type == ")") + 1
                arms.append((None if unknown else fits, item.children[body:], f"case {shown(node.children[1:2])}"))
        return self._choose(arms)

    def _for_statement(self, node: Node) -> bool | None:
        variable, (body,) = node.child_by_field_name("variable"), node.children_by_field_name("body")
        words = [word for word in self._words(node.children_by_field_name("value")) if word.text not in CALLERS]
        why = shown([node]).removesuffix(shown([body])).rstrip(" ;")
        if variable is not None and not any(word.unknown for word in words):
            for word in words:
                self._state.variables[text_of(variable)] = [word]
                self.run(body.children)
            return True
        if variable is not None:
            self._state.variables[text_of(variable)] = self._unknown(text_of(variable), why)
        elif self._state.given is None and _COUNTED.search(why):
            return self._given_by_callers(body.children)
        self._maybe([body.children, []], why)
        return None

    def _given_by_callers(self, body: Sequence[Node]) -> bool:
        """Skips a loop over the script's own arguments; of the variables that it sets, empty ones become unknown."""
        before, count = self._state.copy(), len(self.found)
        with suppress(ShellError):
            self.run(body)
        del self.found[count:]
        after, self._state = self._state, before
        for name, words in [*before.variables.items()]:
            if not any(word.text or word.unknown for word in words) and before.differs(name, after):
                before.variables[name] = self._unknown(name, f"${name}{_MAY_BE_GIVEN}")
        return True

    def _test_command(self, node: Node) -> bool | None:
        double = node.children[0].type == "[["
        words: list[Word] = []
        for group in words_in(node.children[1:-1], in_test=True):
            words += [self._value(group)] if double else self._words(group)
        return shell_values.holds([None if word.unknown else word.text for word in words], patterns=double)

    def _redirected_statement(self, node: Node) -> bool | None:
        """Runs a statement with redirections; words after a redirection belong to the statement."""
        body = node.child_by_field_name("body")
        documents = [each for each in node.children if each.type == "heredoc_redirect"]
        more = [word for document in documents for word in document.children_by_field_name("argument")]
        inner = [child for document in documents for child in document.children]
        for each in (*node.children, *inner):
            to = each.children_by_field_name("destination") if each.type == "file_redirect" else []
            more += to[1:]
            if documents and to:  # a file that the script writes
                self.found.append(Command((Word(">", line_of(each)), self._value(to[:1]))))
        status = None
        if body is not None and body.type == "command":
            status = self._command(body, more, [each for each in inner if each.type == "heredoc_body"])
        elif body is not None:
            status = self._one(body)
        for each in inner:
            status = self._one(each) if each.type == "pipeline" else status
        return status

    def _command(self, node: Node, more: Sequence[Node] = (), documents: Sequence[Node] = ()) -> bool | None:
        own = self._assignments(node)
        others = ("variable_assignment", "file_redirect", "herestring_redirect")
        words = self._words(each for each in (*node.children, *more) if each.type not in others)
        if not words:
            return True
        status = self._run_words(words, own)
        scripts = [Word(text_of(each), line_of(each)) for each in documents if words[0].text not in _PASSES_ON]
        for place, script in enumerate([*words[1:], *scripts], 1):
            if _PROGRAM.search(script.text) and script.text != script.unknown and not _TELLS.search(words[0].text):
                self._within(script, words[:place], own)
        return status

    def _within(self, script: Word, before: Sequence[Word], own: Mapping[str, list[Word]]) -> None:
        """Runs a script for another shell, from a word or a here-document; ``before`` are the words in front of it."""
        outer, first = self._state, len(self.found)
        variables = {**own, **{name: [word] for name, word in map(assigned, before) if name}}
        self._state = outer.copy()
        self._state.variables |= variables
        self._state.exported |= dict.fromkeys(variables)
        with suppress(ShellError):
            self._spend(len(script.text) + script.line)
            self.run(parsed(script.text, script.line))
        for at, found in enumerate(self.found[first:], first):
            self.found[at] = replace(found, words=tuple(replace(word, start=0, end=0) for word in found.words))
        self._state = outer

    def _run_words(self, words: list[Word], own: Mapping[str, list[Word]]) -> bool | None:
        state, name, texts = self._state, words[0].text, [word.text for word in words[1:]]
        if _OPTION.match(name) and self.found and _PROGRAM.search(" ".join(w.text for w in self.found[-1].words)):
            text = f"the command ends here, and {name[:80]} below it belongs to no other"
            raise ShellError(words[0].line - 1, f"{text}; end the line in a backslash, with no space or comment there")
        if name in state.functions and state.depth < _DEEPEST:
            return self._call(state.functions[name], words[1:])
        if name in ("exit", "return"):
            # An exit with an error is a check of something that the command line of the tuner may give instead.
            state.ended = name == "exit" and texts[:1] in ([], ["0"])
            return None
        if name in ("true", ":", "false"):
            return name != "false"
        if name == "test":
            return shell_values.holds([None if word.unknown else word.text for word in words[1:]], patterns=False)
        if name in shell_values.PRINTS:
            known = not any(word.unknown or word.text in CALLERS for word in words)
            printed = shell_values.printed(name, texts, state.folder) if known else None
            self.printed = None if self.printed is None or printed is None else [*self.printed, printed]
            return True
        if name == "set" and "--" in texts:
            state.given = [word for word in words[texts.index("--") + 2 :] if word.text not in CALLERS]
        if name in ("read", "mapfile", "readarray"):
            state.variables |= {text: self._unknown(text, name) for text in texts}
        exported = {each: state.variables[each] for each in state.exported if each in state.variables}
        environment = {each: value[0] for each, value in {**exported, **own}.items() if value}
        if name.rpartition("/")[2] == "env":
            environment.update(takewhile(lambda pair: pair[0] != "", map(assigned, words[1:])))
        folder = "" if state.folder in (".", os.getcwd()) else state.folder
        self.found.append(Command(tuple(words), environment, folder))
        if any(_NO_NPU.search(word.text) for word in words) and not any("main_ppo" in word.text for word in words):
            return False
        if name in ("cd", "pushd", "popd"):
            to = [word for word in words[1:] if not word.text.startswith("-")]
            state.folder = gone_to(to[0].text, state.folder) if len(to) == 1 and not to[0].unknown else None
        else:
            self.printed = None
        return True if name in _SUCCEEDS else None

    def _call(self, function: Node, words: list[Word]) -> bool | None:
        before = self._state.given
        passed = [word for word in words if word.text not in CALLERS]
        self._state.given = before if words and not passed else passed
        self._state.depth += 1
        status = self._one(function)
        self._state.given = before
        self._state.depth -= 1
        return status

    # Words.

    def _assignments(self, node: Node) -> dict[str, list[Word]]:
        """Returns the variables that are assigned in a node."""
        found: dict[str, list[Word]] = {}
        for each in [node] if node.type == "variable_assignment" else node.children:
            if each.type == "variable_assignment":
                name, _, index = text_of(each.children[0]).partition("[")
                value = each.children[2:]
                before = self._state.variables.get(name, []) if each.children[1].type == "+=" else []
                if value and value[0].type == "array":
                    found[name] = [*before, *self._words(value[0].children[1:-1])]
                    continue
                word = self._value(value)
                text, unknown = (f"${name}", text_of(each)) if index else (word.text, word.unknown)
                word = Word(text, line_of(each), each.start_byte, each.end_byte, unknown)
                found[name] = [_joined(before[0], word) if before else word, *before[1:]]
        return found

    def _value(self, nodes: Sequence[Node]) -> Word:
        """Returns nodes as one assigned value, spaces included."""
        return self._as_one(self._inside(text_of(*nodes), nodes, "value"))

    def _as_one(self, pieces: Sequence[list[Word]]) -> Word:
        """Joins pieces to one word, with spaces between the words of a list."""
        text = "".join(" ".join(word.text for word in piece) for piece in pieces)
        self._spend(len(text))
        unknown = next((word.unknown for piece in pieces for word in piece if word.unknown), "")
        return Word(text, self.line, unknown=unknown)

    def _words(self, nodes: Iterable[Node]) -> list[Word]:
        """Returns the words of nodes; each node gives none, one or several."""
        found: list[Word] = []
        for group in words_in(nodes):
            self.line = line_of(group[0])
            pieces = self._inside(text_of(*group), group, "word")
            if len(pieces) == 1 and pieces[0] and pieces[0][0].unknown == pieces[0][0].text + _MAY_BE_GIVEN:
                continue
            own: list[Word] = []
            for piece in pieces:
                own = [*own[:-1], _joined(own[-1], piece[0]), *piece[1:]] if own and piece else own + piece
            start, end = (group[0].start_byte, group[-1].end_byte) if len(own) == 1 else (0, 0)
            found += [replace(word, start=start, end=end) for word in own]
            self._spend(sum(len(word.text) + _A_STEP for word in own))
        return found

    def _inside(self, text: str, nodes: Sequence[Node], mode: str, skip: int = 0, cut: int = 0) -> list[list[Word]]:
        """Expands a text that ends with the last of ``nodes``; each part of it gives none, one or several words.

        Args:
            mode: ``word``, in which spaces in a variable divide words; ``value``; or ``quoted``, between double quotes.
            skip: number of bytes to omit at the beginning.
            cut: number of bytes to omit at the end.
        """
        source, pieces, at = text.encode(), list[list[Word]](), skip
        first, last = nodes[-1].end_byte - len(source) if nodes else 0, len(source) - cut
        for node in inner_of(nodes):
            start, end = node.start_byte - first, node.end_byte - first
            if mode == "quoted":  # the node may begin with the space before it
                start = end - len(text_of(node).lstrip().encode())
            if at <= start and end <= last and not (mode == "quoted" and node.type == "raw_string"):
                pieces += [*self._plain(source[at:start].decode(), mode), *self._expanded(node, mode)]
                at = end
        return [*pieces, *self._plain(source[at:last].decode(), mode)]

    def _plain(self, text: str, mode: str) -> Iterator[list[Word]]:
        """Expands the variables and escaped characters of a text without brackets and quotes."""
        for found in _PLAIN.finditer(text):
            if found[2]:
                yield self._parameter(found[2], found[0], mode)
                continue
            escaped = found[0].startswith("\\") and (mode != "quoted" or found[1] in tuple('$`"\\\n'))
            yield [Word(found[1].strip("\n") if escaped else found[0], self.line)]

    def _expanded(self, node: Node, mode: str) -> list[list[Word]]:
        text = text_of(node).lstrip()
        unknown = [[Word(text, self.line, unknown=text)]]
        match node.type:
            case "raw_string" | "ansi_c_string":
                return [[Word(text.partition("'")[2][:-1], self.line)]]
            case "process_substitution":
                return [[]]
            case "string":
                inner = self._inside(text, node.children, "quoted", 1, 1)
                empty = [] in inner and not any(word.text for piece in inner for word in piece)
                return [[]] if empty else [[Word("", self.line)], *inner]  # a list without words gives none
            case "arithmetic_expansion" | "command_substitution" if shell_tree.is_sum(node):
                total = self._total(node)
                return unknown if total is None else [[Word(str(total), self.line)]]
            case "command_substitution":
                within = _Runner(self._state.copy(), self._work)
                within.run(node.children)
                if within.printed is None or not (within.printed or within.found):
                    return unknown
                return [self._divided(Word("\n".join(within.printed), self.line), mode)]
        return [self._parameter(text[2:-1], text, mode, node)]

    def _divided(self, word: Word, mode: str) -> list[Word]:
        """Splits a variable's text into words, as ``mode`` requires."""
        if mode != "word" or (word.text and word.text in (*CALLERS, word.unknown)):
            return [word]
        return [Word(text, word.line, 0, 0, unknown) for text, unknown in shell_values.fields(word.text, word.unknown)]

    def _parameter(self, expression: str, text: str, mode: str, node: Node | None = None) -> list[Word]:
        """Expands ``${expression}``, which is written as ``text``."""
        found = _PARAMETER.fullmatch(expression)
        unknown = [Word(text, self.line, unknown=text)]
        if expression in ("@", "*") and self._state.given is None:
            return [Word("$" + expression, self.line)]
        if found is None:
            return unknown
        counted, name, index, sign, rest = found[1], found[2], found[3] or "", found[4] or "", found[5] or ""
        whole = index in ("[@]", "[*]") or name in ("@", "*")
        words = self._of(name)
        if index and not whole and words is not None:
            at = whole_number(index[1:-1])
            words = None if at is None else words[at:][:1]
        if counted:
            if words is None or any(word.unknown for word in words):
                return unknown
            return [Word(str(len(words) if whole else len(words[0].text if words else "")), self.line)]
        inner: list[list[Word]] = []
        if node is not None and rest:
            inner = self._inside(text, node.children, mode, len(f"{text[:-1]}".encode()) - len(rest.encode()), 1)
        if sign.strip(":") in tuple("-+=?"):
            there = words is not None and not (sign[0] == ":" and not any(word.text or word.unknown for word in words))
            if not there and sign.endswith("?"):
                return unknown
            if sign.endswith("+") == there:
                return self._instead(name if sign.endswith("=") else "", inner, rest, mode)
            words = [] if sign.endswith("+") else words
        elif words is None:
            return [] if whole else unknown  # no list can come from outside
        elif sign:
            pattern = self._as_one(inner).text
            self._spend(sum(len(word.text) ** 2 // _A_STEP for word in words))
            words = [replace(word, text=shell_values.changed(word.text, sign, pattern)) for word in words]
        if whole and (index != "[*]" or mode == "word"):
            return words or []
        return self._divided(self._as_one([words or [] if whole else (words or [])[:1]]), mode)

    def _of(self, name: str) -> list[Word] | None:
        """Returns the words of a variable, or of a function's argument; ``None`` if it is unset."""
        given = self._state.given or []
        if name in ("@", "*"):
            return given
        if name == "#":
            return [Word(str(len(given)), self.line)]
        is_place = name.isdecimal() and name != "0"
        return given[int(name[:9]) - 1 :][:1] or None if is_place else self._state.variables.get(name)

    def _instead(self, name: str, pieces: Sequence[list[Word]], rest: str, mode: str) -> list[Word]:
        """Returns the words after the operator of ``${NAME:-rest}``, one word or a list; may set variable ``name``."""
        one = self._as_one(pieces)
        if name:
            self._state.variables[name] = [one]
        several = next((piece for piece in pieces if len(piece) != 1), None)
        return several if several is not None else self._divided(one, "value" if {*rest} & {*"'\""} else mode)

    def _total(self, node: Node) -> int | None:
        """Evaluates an arithmetic expansion, ``$((...))`` or ``((...))``; ``None`` if a value in it is unknown."""
        first, last = (3 if text_of(node).lstrip().startswith("$((") else 2), 2
        found = self._as_one(self._inside(text_of(node).lstrip(), node.children, "quoted", first, last))

        def value(name: str) -> str | None:
            words = self._of(name)
            return None if words and words[0].unknown else words[0].text if words else ""

        return None if found.unknown else shell_values.total(found.text, value)


def _joined(first: Word, second: Word) -> Word:
    return Word(first.text + second.text, second.line, first.start, first.end, first.unknown or second.unknown)
