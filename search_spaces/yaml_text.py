"""Reads YAML text into plain values with line numbers, bounded in size, depth and number, without aliases and tags."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show

MAX_BYTES = 64 * 1024
MAX_DEPTH = 10
MAX_NODES = 10_000

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = yaml.constructor.SafeConstructor()
_SURPRISING = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
"""Numbers to base 8 and 60 of YAML 1.1: ``010`` would be 8, and ``1:30`` would be 90."""
_PLAIN = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Entry:
    """A value and its first line, counted from 1; 0 for a value that is not from a file."""

    value: str | int | float | bool | list[Entry] | dict[str, Entry] | None
    line: int

    @property
    def plain(self) -> Any:
        """The value without line numbers."""
        if isinstance(self.value, list):
            return [item.plain for item in self.value]
        if isinstance(self.value, dict):
            return {name: item.plain for name, item in self.value.items()}
        return self.value

    @property
    def described(self) -> str:
        """The value as a user writes it."""
        if isinstance(self.value, list):
            return "a list"
        if isinstance(self.value, dict):
            return "a mapping"
        return show(self.value)


def problem(source: str, line: int, text: str) -> SpaceError:
    """Builds the error of a problem; the sentence begins with the file and line."""
    where = f"{source}, line {line}" if line else source
    return SpaceError(f"{where}: {text}.")


def read(data: bytes, source: str, *, kind: str = "space file", exact: bool = False) -> Entry:
    """Reads the one document in ``data``.

    Args:
        data: UTF-8 text.
        kind: name of such a file in messages.
        exact: read scalars as YAML 1.1, in which ``1e-3`` is text; else ``1e-3`` is a number.

    Raises:
        SpaceError: the data is not such a document; names the line.
    """
    if len(data) > MAX_BYTES:
        raise problem(source, 0, f"{len(data)} bytes are more than a {kind} may have ({MAX_BYTES})")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise problem(source, data[: error.start].count(b"\n") + 1, "this is not UTF-8 text") from None
    try:
        _inspect(text, source, kind)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise problem(source, line, f"this is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise problem(source, 0, f"this is not YAML: {' '.join(str(error).split())[:120]}") from None
    return _entry(node, source, exact)


def plain(value: object, source: str, depth: int = 0) -> Entry:
    """Converts JSON values to entries without lines. Raises SpaceError if nested too deep, or for a type JSON lacks."""
    if depth > MAX_DEPTH:
        raise problem(source, 0, f"this is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return Entry({str(k): plain(v, source, depth + 1) for k, v in value.items()}, 0)
    if isinstance(value, list | tuple):
        return Entry([plain(v, source, depth + 1) for v in value], 0)
    if value is None or isinstance(value, str | int | float | bool):
        return Entry(value, 0)
    raise problem(source, 0, f"expected plain data, got {type(value).__name__}")


def _inspect(text: str, source: str, kind: str) -> None:
    """Refuses expensive or ambiguous YAML from the event stream, before any value is built."""
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise problem(source, line, f"a {kind} holds one document")
        elif isinstance(event, yaml.AliasEvent):
            raise problem(source, line, f"aliases (*{show(event.anchor)}) are not allowed; write the value out")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            _within(depth, nodes, source, line)
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise problem(source, line, f"tags ({show(tag)}) are not allowed; write a plain value")


def _within(depth: int, nodes: int, source: str, line: int) -> None:
    if depth > MAX_DEPTH:
        raise problem(source, line, f"this is nested more than {MAX_DEPTH} deep")
    if nodes > MAX_NODES:
        raise problem(source, line, f"this has more than {MAX_NODES} values")


def _entry(node: yaml.Node | None, source: str, exact: bool) -> Entry:
    if node is None:
        return Entry(None, 0)
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return Entry([_entry(child, source, exact) for child in node.value], line)
    if isinstance(node, yaml.MappingNode):
        return Entry(_mapping(node, source, exact), line)
    if isinstance(node, yaml.ScalarNode):
        return Entry(_scalar(node, source, line, exact), line)
    raise problem(source, line, "expected a value, a list or a mapping")


def _mapping(node: yaml.MappingNode, source: str, exact: bool) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise problem(source, line, "a key is a name, not a list or mapping")
        name = key_node.value
        if name in found:
            raise problem(source, line, f"{show(name)} is given twice, first in line {found[name].line}")
        value = _entry(value_node, source, exact)
        # A key's own line is where people look for it, even if its value begins further down.
        found[name] = Entry(value.value, line)
    return found


def _scalar(node: yaml.ScalarNode, source: str, line: int, exact: bool) -> str | int | float | bool | None:
    tag = node.tag.removeprefix(_PLAIN)
    if not exact and tag in ("int", "float") and _SURPRISING.fullmatch(node.value):
        return str(node.value)
    try:
        if tag == "int":
            return int(_SCALARS.construct_yaml_int(node))
        if tag == "float":
            return float(_SCALARS.construct_yaml_float(node))
        if tag == "bool":
            return bool(_SCALARS.construct_yaml_bool(node))
    except (ValueError, OverflowError):
        raise problem(source, line, f"{show(node.value)} is not a number that can be read") from None
    if tag == "null":
        return None
    text = str(node.value)
    if not exact and tag == "str" and not node.style and _looks_like_float(text):
        return float(text)
    return text


def _looks_like_float(text: str) -> bool:
    if not text or text[0] not in "+-.0123456789" or len(text) > 40:
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
