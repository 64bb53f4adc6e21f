"""How large things may be, how plainly they are said, and how many of each a room may have: of all product code.

``house.toml`` holds the most of each that a room may have. Its numbers only get smaller:
``python -m tests.unit.test_house`` lowers them to what there is.
Code that moves to another room takes its numbers along, by hand.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("house.toml")
PRODUCT = ("api", "autotune", "search_spaces", "tools", "trainer")
LONGEST_FUNCTION, LONGEST_FILE, SMALL_FILE = 50, 600, 90
"""Lines."""
DOCUMENTED = 0.9
"""Share of public functions, classes and methods with a docstring."""
LONE_WORDS = re.compile(
    r"_*(found|said|told|asked|wanted|given|known|made|kept|left|held|shown|seen|drawn|meant|sent|written|taken|looked|heard"
    r"|passed|served|standing|beside|apart|listed|named|built|placed|moved|alike)_*"
)
"""Alone they do not name a function or a parameter."""
RIDDLES = re.compile(r"\b(what|whoever|nobody|those that|so many|as many)\b", re.IGNORECASE)
"""Each stands for a noun that the reader of a first sentence cannot know."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def modules() -> dict[Path, ast.Module]:
    """The product, by path from the root."""
    paths = [path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def public(within: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Of a module, or of a class in it, and of the public classes among them."""
    for node in within.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return ((path, node) for path, tree in modules().items() for node in ast.walk(tree) if isinstance(node, Function))


def lines_of(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def first_sentence(node: ast.AST) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.Module | Definition) else None
    return re.split(r"(?<=[.:])\s|\n\n", text or "")[0]


# The measures: each gives the file of every case.


def lines() -> Iterator[Path]:
    for top in (*PRODUCT, "benchmarks", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            yield from [path.relative_to(ROOT)] * lines_of(path)


def lone_words() -> Iterator[Path]:
    """Functions and parameters with such a name."""
    for path, node in functions():
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        yield from (path for name in (node.name, *(each.arg for each in parameters)) if LONE_WORDS.fullmatch(name))


def verbless() -> Iterator[Path]:
    """Functions, properties apart, whose docstring does not begin with a verb in the third person."""
    verb = re.compile(rf"({'|'.join(tomllib.loads(TABLE.read_text())['verbs'].split())})\b(?! of\b)")
    for path, node in functions():
        is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
        if first_sentence(node) and not is_property and not verb.match(first_sentence(node)):
            yield path


def riddles() -> Iterator[Path]:
    """Docstrings with a word in their first sentence that stands for an unknown noun."""
    return (path for path, tree in modules().items() for node in ast.walk(tree) if RIDDLES.search(first_sentence(node)))


def constants() -> Iterator[Path]:
    """Numbers with a name in a module."""
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                unpacked = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
                values = node.value.elts if unpacked and isinstance(node.value, ast.Tuple) else [node.value]
                yield from (path for value in values if re.fullmatch(r"[\d.()e/*+< -]+", ast.unparse(value)))


def small_files() -> Iterator[Path]:
    """Files of at most ``SMALL_FILE`` lines that one file alone imports."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    for name in graph.modules:
        path = Path(*name.split(".")).with_suffix(".py")
        readers = graph.find_modules_that_directly_import(name)
        if len(readers) == 1 and (ROOT / path).is_file() and lines_of(path) <= SMALL_FILE:
            yield path


MEASURES: tuple[Callable[[], Iterator[Path]], ...] = (lines, lone_words, verbless, riddles, constants, small_files)


def room(path: Path) -> str:
    """A folder of ``autotune`` or ``trainer``, a framework's parent side, or a top folder."""
    depth = {"autotune": 2, "trainer": 3 if path.parts[1] == "frameworks" else 2}.get(path.parts[0], 1)
    return "/".join(path.parts[:-1][:depth])


def counted(measure: Callable[[], Iterator[Path]]) -> dict[str, int]:
    return dict(sorted(Counter(map(room, measure())).items()))


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.__name__)
def test_no_room_has_more_than_it_had(measure: Callable[[], Iterator[Path]]) -> None:
    now, most = counted(measure), Counter(tomllib.loads(TABLE.read_text())[measure.__name__])
    assert now or not most, "nothing was counted"
    assert {name: f"{count}, at most {most[name]}" for name, count in now.items() if count > most[name]} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {f"{path}:{node.name}": node.end_lineno - node.lineno + 1 for path, node in functions() if node.end_lineno}
    assert len(long) > 1000
    assert {name: count for name, count in long.items() if count > LONGEST_FUNCTION} == {}


def test_no_file_is_too_long_to_read() -> None:
    assert {str(path): lines_of(path) for path in modules() if lines_of(path) > LONGEST_FILE} == {}


def test_public_names_say_what_they_are() -> None:
    said = [ast.get_docstring(node) is not None for tree in modules().values() for node in public(tree)]
    assert sum(said) / len(said) >= DOCUMENTED


def lower() -> None:
    """Lowers each number of the table to what there is."""
    text = TABLE.read_text()
    lowered = text.partition("\n[")[0]
    for measure in MEASURES:
        most = tomllib.loads(text)[measure.__name__]
        rows = [f'"{name}" = {min(count, most[name])}\n' for name, count in counted(measure).items() if name in most]
        lowered += f"\n[{measure.__name__}]\n" + "".join(rows)
    TABLE.write_text(lowered)


if __name__ == "__main__":
    lower()
