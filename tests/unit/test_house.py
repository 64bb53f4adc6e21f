"""How large things may be, and how many public names say what they are: of all product code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("api", "autotune", "search_spaces", "trainer")
LONGEST_FUNCTION, LONGEST_FILE = 50, 600
"""Lines."""
DOCUMENTED = 0.9
"""Share of public functions, classes and methods with a docstring."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    paths = [path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))]
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


def public(within: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Of a module, or of a class in it, and of the public classes among them."""
    for node in within.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert len(long) > 1000
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION} == {}


def test_no_file_is_too_long_to_read() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path, _ in modules()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == {}


def test_public_names_say_what_they_are() -> None:
    said = [ast.get_docstring(node) is not None for _, tree in modules() for node in public(tree)]
    assert sum(said) / len(said) >= DOCUMENTED
