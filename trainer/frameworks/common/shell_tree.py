"""Parses a shell script into tree-sitter's nodes, and finds its statements and words in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from search_spaces.knobs.model import show
from search_spaces.yaml_text import MAX_BYTES

_PARSER = Parser(Language(tree_sitter_bash.language()))
_CLOSES: Mapping[str, str] = {
    "if": "fi", "case": "esac", "do": "done", "{": "}", "(": ")", "((": "))", "$(": ")", "$((": "))", "${": "}",
    "[": "]", "[[": "]]", '"': '"', "`": "`",
}  # fmt: skip
"""Character or word that opens a construct -> the one that closes it."""
_APART = frozenset({"(", ")", "&&", "||", "!"})
"""Operators that are separate words, even without spaces."""
_INNER = frozenset(
    {"string", "raw_string", "ansi_c_string", "expansion", "command_substitution", "arithmetic_expansion"}
    | {"process_substitution"}
)
"""Types of nodes in a word that are more than text."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_VARIABLE = re.compile(rb"\$(?:([A-Za-z_0-9])|[@*#?!$-])")
"""Matches the beginning of a variable; the grammar does not know the second one of ``$A/$B/c``, so it sees a name."""
_LAST_BACKSLASH = re.compile(r"(?<!\\)((?:\\\\)*)\\\Z")
"""Matches a backslash that ends a script; it joins nothing."""
_PLAIN = re.compile(rb"\$?[\x80-\xff]|\$(?=[%=.,:/+^~])")
"""Matches bytes to hide from the parser: a byte outside ASCII, for which the grammar's scanner reads beyond its tables,
and a ``$`` that names no variable."""
_NOTE = re.compile(rb"(?<![^\s])`#[^`\n]*`")
"""Matches a comment in backquotes between a command's lines; the grammar takes the closing quote for its text."""
_NO_FILE = re.compile(r"[0-9]*[<>&|]+[ \t]*\n")
_MOST_REPAIRS = 10


class ShellError(ValueError):
    """A line that cannot be read, and the reason; the text has no capital and no full stop."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


def parsed(text: str, line: int = 1) -> list[Node]:
    """Parses a script whose first line is number ``line`` into its statements.

    Raises ShellError for a text that is not a script.
    """
    if (wrong := _NO_TEXT.search(text)) is not None:
        row = line + text.count("\n", 0, wrong.start())
        raise ShellError(row, "it holds a character that is none (a surrogate or NUL)")
    if len(text) > MAX_BYTES:
        raise ShellError(0, f"a script of more than {MAX_BYTES} bytes is not read")
    original = ("\n" * (line - 1) + _LAST_BACKSLASH.sub(r"\1\n", text) + "\n").encode()
    plain = _NOTE.sub(lambda found: b" " * len(found[0]), original)
    plain = _PLAIN.sub(lambda found: b"%" * len(found[0]), plain)
    source = bytearray(_VARIABLE.sub(lambda found: b"_" + (found[1] or b"_"), plain))
    for _ in range(_MOST_REPAIRS):
        root = _PARSER.parse(source).root_node
        if not _repaired(source, root):
            break
    source[:] = original  # which is where the nodes have their text from
    for node in _below(root):
        unfit = node.type == "file_redirect" and _NO_FILE.match(text_of(node))
        lacks = any(child.is_missing and child.type != "heredoc_end" for child in node.children)
        if node.is_error or unfit or lacks:
            raise _fault(node)
    return root.children


def _repaired(source: bytearray, root: Node) -> bool:
    """Splits assignments from the next line's command, to which the grammar joins them; returns whether it did."""
    before = bytes(source)
    for command in _below(root):
        if command.type == "command" and command.children[0].type == "variable_assignment":
            pairs = pairwise(command.children)
            gaps = [(a.end_byte, b.start_byte) for a, b in pairs if a.type in ("variable_assignment", "comment")]
            breaks = [b"\n" in before[start:end].replace(b"\\\n", b"") for start, end in gaps]
            for at, (start, _) in enumerate(gaps):
                if any(breaks[at:]) and not breaks[at]:
                    source[start] = ord(";")
    return source != before


def _fault(node: Node) -> ShellError:
    """Returns the error of a text that is not a statement: an opening without an end, or an unexpected character."""
    opened: list[Node] = []
    for leaf in _below(node):
        if opened and leaf.type == _CLOSES[opened[-1].type] and not leaf.is_missing:
            opened.pop()
        elif leaf.type in _CLOSES and not leaf.is_named and not leaf.is_missing:
            opened.append(leaf)
    line, written = line_of((opened or [node])[-1]), text_of(node).strip()
    sign = _CLOSES[opened[-1].type] if opened else "'" * (written.count("'") % 2)
    if sign in ('"', "'", "`"):
        return ShellError(line, f"a quote ({sign}) is not closed")
    first = written.partition("\n")[0]
    return ShellError(line, f"expected {sign}" if opened else f"{show(first[:40])} cannot be read here")


def _below(node: Node) -> Iterator[Node]:
    """Yields the node and its descendants, in order, except in arithmetic and tests, where the grammar has faults."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        yield node
        if node.type != "test_command" and not is_sum(node):
            ahead += reversed(node.children)


def is_sum(node: Node) -> bool:
    """Tells whether a node is arithmetic that the grammar parses as a command, in ``${NAME:-$((...))}``."""
    sign = {"arithmetic_expansion": b"", "command_substitution": b"$(("}.get(node.type)
    return sign is not None and (node.text or b"").lstrip().startswith(sign)


def text_of(*nodes: Node) -> str:
    """Returns the text from the first to the last of neighbouring nodes."""
    if len(nodes) == 1 or not nodes or nodes[0].parent is None:
        return b"".join(node.text or b"" for node in nodes).decode(errors="replace")
    first, text = nodes[0].parent.start_byte, nodes[0].parent.text or b""
    return text[nodes[0].start_byte - first : nodes[-1].end_byte - first].decode(errors="replace")


def line_of(node: Node) -> int:
    """Returns the line of a node; a quoted node may begin with the space before it."""
    text = text_of(node)
    return node.start_point.row + 1 + text[: len(text) - len(text.lstrip())].count("\n")


def on_one_line(nodes: Iterable[Node]) -> str:
    """Returns the text of statements, for messages."""
    return " ".join(" ".join(text_of(node).split()) for node in nodes if node.is_named)


def words_in(nodes: Iterable[Node], *, in_test: bool = False) -> list[list[Node]]:
    """Joins nodes without space between them into words.

    Args:
        in_test: whether the nodes are a test, in which expressions are split and operators are separate words.
    """
    found: list[list[Node]] = []
    for node in nodes:
        if in_test and node.type in ("binary_expression", "unary_expression", "parenthesized_expression"):
            found += words_in(node.children, in_test=True)
        elif found and _APART.isdisjoint((node.type, found[-1][-1].type)) and _touch(found[-1][-1], node):
            found[-1].append(node)
        elif node.type != "comment":
            found.append([node])
    return found


def _touch(first: Node, second: Node) -> bool:
    if second.start_byte - first.end_byte != 2 or second.start_point.column:
        return second.start_byte == first.end_byte
    return text_of(first, second).encode()[first.end_byte - first.start_byte :].startswith(b"\\\n")


def inner_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields the nodes in ``nodes`` that are more than text."""
    for node in nodes:
        if node.type in _INNER:
            yield node
        else:
            yield from inner_of(node.children)


def links_of(node: Node) -> list[tuple[str, Node]]:
    """Returns the statements that ``&&`` and ``||`` join, each with the operator before it."""
    links: list[tuple[str, Node]] = []
    while node.type == "list":
        left, sign, right = (child for child in node.children if child.type != "comment")
        links.append((sign.type, right))
        node = left
    found: list[tuple[str, Node]] = []
    for before, statement in [("", node), *reversed(links)]:
        found.append((before, statement))
        for each in statement.children:  # a sign and a statement may stand in front of the text of a here-document
            signs, after = each.child_by_field_name("operator"), each.child_by_field_name("right")
            if each.type == "heredoc_redirect" and signs is not None and after is not None:
                found.append((signs.type, after))
    return found
