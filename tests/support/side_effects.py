"""What modules do to torch and the GPU when they are imported, read in their sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ASKS = re.compile(
    r"torch\.(cuda|backends)\.[\w.]+|(\w+\.)*(has_triton|get_device_capability|get_device_properties|is_sm_\w+)"
    r"|(\w+\.)*driver\.active[\w.]*|torch\.set_\w+"
)
"""Calls, and places that are assigned to."""


def effects(path: Path) -> Iterator[str]:
    """Calls and assignments outside of functions that match ``ASKS``."""
    yield from _of(ast.parse(path.read_text(encoding="utf-8")))


def _of(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for decorator in getattr(child, "decorator_list", ()):
                yield from _of(decorator)
            continue
        targets = (
            child.targets if isinstance(child, ast.Assign) else [child.func] if isinstance(child, ast.Call) else []
        )
        sign = " =" if isinstance(child, ast.Assign) else "()"
        for name in map(ast.unparse, targets):
            if ASKS.fullmatch(name):
                yield name + sign
        yield from _of(child)
