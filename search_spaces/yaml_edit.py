"""Changes values in YAML text; comments, order, quotes and blanks stay unchanged.

Only the text of a value is replaced, at the parser's position; a new key is added at the end of its mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str, ...]
"""Keys from the outermost mapping inwards: one or two."""

_LOADER = yaml.SafeLoader  # the one whose marks count characters
MAPPING = yaml.MappingNode
"""Value in ``Document.values`` of a key that has a mapping."""


class YamlEditError(ValueError):
    """Raised if the text cannot be changed in place; the message is a sentence without its full stop."""


@dataclass(frozen=True)
class Document:
    """Positions in ``text`` of the values of the two outermost levels."""

    text: str
    root: yaml.MappingNode
    end: int
    """Index of the end of the document."""
    values: Mapping[Path, yaml.Node] = field(default_factory=dict)


class _OneLine(yaml.SafeDumper):
    """Writes multi-line text with escaped line breaks, which YAML would fold to spaces in plain or single quotes."""


_OneLine.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if set(text) & set("\n\r\x85\u2028\u2029") else None
    ),
)


def scalar(value: Any) -> str:
    """Formats a value on one line, as YAML 1.1 reads it."""
    text = str(yaml.dump(value, Dumper=_OneLine, default_flow_style=True, width=1 << 30, allow_unicode=True))
    return text.removesuffix("...\n").removesuffix("\n")


def located(text: str) -> Document:
    """Parses the document in ``text``.

    Raises:
        YamlEditError: it is not one YAML document with a mapping, or it has aliases (which could make it vast).
    """
    end = len(text)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            mark = event.start_mark
            if isinstance(event, yaml.AliasEvent):
                line = mark.line + 1 if mark else 0
                raise YamlEditError(f"line {line}: aliases are not allowed; write the value out")
            if isinstance(event, yaml.DocumentEndEvent) and event.explicit and mark:
                end = mark.index
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise YamlEditError(f"this is not YAML: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(root, yaml.MappingNode) or not root.value:
        raise YamlEditError("a mapping of keys to values was expected")
    values: dict[Path, yaml.Node] = {}
    _collect(root, (), values)
    return Document(text, root, end, values)


def _collect(node: yaml.MappingNode, path: Path, values: dict[Path, yaml.Node]) -> None:
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            inner = (*path, key.value)
            values[inner] = value
            if isinstance(value, yaml.MappingNode) and len(inner) < 2:
                _collect(value, inner, values)


def lookup(document: Document, path: Path) -> Any:
    """Returns the scalar at ``path``; ``None`` for an absent path, a list or a mapping."""
    node = document.values.get(path)
    return _meaning(node) if isinstance(node, yaml.ScalarNode) else None


def edited(text: str, changes: Mapping[Path, Any]) -> str:
    """Returns ``text`` with every value of ``changes`` set; a value that already means the same stays as written.

    Args:
        text: a YAML document whose outermost value is a mapping.
        changes: new values by their keys; the mapping a key of the second level belongs to must be there.

    Raises:
        YamlEditError: the text is not such a document, or has no such mapping.
    """
    document = located(text)
    pieces: list[tuple[int, int, str]] = []
    added: dict[Path, list[str]] = {}
    for path, value in changes.items():
        node = document.values.get(path)
        if node is None:
            added.setdefault(path[:-1], []).append(f"{scalar(path[-1])}: {scalar(value)}")
        elif not isinstance(node, yaml.ScalarNode) or (type(had := _meaning(node)), had) != (type(value), value):
            pieces.append(_replacement(document, node, value))
    pieces += [_addition(document, parent, lines) for parent, lines in added.items()]
    for start, end, new in sorted(pieces, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _meaning(node: yaml.ScalarNode) -> Any:
    """Returns the value of a scalar by the safe loader; its text if the loader fails."""
    try:
        return _LOADER("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value


def _replacement(document: Document, node: yaml.Node, value: Any) -> tuple[int, int, str]:
    start, end = int(node.start_mark.index), _text_end(document, node)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:  # it may stand in the key's own column
        head = document.text[:start].rstrip()
        if head.endswith(":"):
            return len(head), end, f" {scalar(value)}"
    return start, end, (" " if start == end else "") + scalar(value)


def _text_end(document: Document, node: yaml.Node) -> int:
    """Returns the index after the value's last character; the end mark of a block value is only at the next token."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    flow = getattr(node, "flow_style", None) or (isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">"))
    if flow:
        return end
    lines = document.text[start:end].split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + len("\n".join(lines).rstrip())


def _addition(document: Document, parent: Path, lines: list[str]) -> tuple[int, int, str]:
    """Returns (start, end, new text) that append keys to a mapping."""
    node = document.root if not parent else document.values.get(parent)
    if not isinstance(node, yaml.MappingNode):
        raise YamlEditError(f"{'.'.join(parent)} is no mapping, so nothing can be set in it")
    if node.flow_style:
        at = int(node.end_mark.index) - 1
        return at, at, (", " if node.value else "") + ", ".join(lines)
    indent = " " * int(node.value[0][0].start_mark.column)
    at = document.end if not parent else _text_end(document, node)
    if parent:  # behind a comment on the mapping's last line
        line_end = document.text.find("\n", at)
        at = len(document.text) if line_end < 0 else line_end + 1
    newline = "\r\n" if "\r\n" in document.text else "\n"
    before = "" if at == 0 or document.text[at - 1] == "\n" else newline
    return at, at, before + "".join(f"{indent}{line}{newline}" for line in lines)
