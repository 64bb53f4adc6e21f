"""Links, commands, modules and files that the documents name exist, and the documents keep their limits of length."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from autotune.cli.app import build_app

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [
    *(README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks" / "tables").glob("*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
README_WORDS = 900
DECISION_LINES = 60
PLACES = 6
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
GLOSSARY_WORDS = 40
DESIGN = {
    *("knob", "search space", "legality", "workload", "study", "trial", "phase", "cycle", "tokens/hour"),
    *("effective tokens/hour", "useful share", "outcome", "baseline", "reference", "fingerprint", "recommendation"),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=name_of)


def prose(text: str) -> str:
    """Without blocks of code, in which brackets are no links."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """GitHub's names for the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", head).lower()).replace(" ", "-") for head in heads}


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere in this checkout; addresses of the web are not asked."""
    found = []
    for link in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@EACH_PAGE
def test_every_link_resolves(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head\n[a](page.md#a-head) [b](page.md#no-head) [c](gone.md)\n```\n[d](code.md)\n```\n")
    assert broken(page) == ["page.md#no-head", "gone.md"]


def test_the_readme_is_read_in_a_minute_or_two() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= README_WORDS


def test_the_two_commands_of_the_first_screen_exist() -> None:
    first = FENCE.search(README.read_text(encoding="utf-8"))
    assert first is not None
    commands = re.findall(r"^\$ (\S+ \S+)", first.group(), re.MULTILINE)
    assert commands == ["make start", "make test"]
    assert {command.split()[1] for command in commands} <= targets()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@EACH_PAGE
def test_every_command_it_shows_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = set(re.findall(r"(?:`|\$ |^ {4})make ([a-z][a-z0-9-]*)", text, re.MULTILINE))
    assert made <= targets()
    for module in re.findall(r"python -m ((?:benchmarks|tools)[\w.]*\w)", text):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_the_glossary_has_the_words_of_the_design_each_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", text, re.MULTILINE)
    assert len(set(words)) == len(words) >= GLOSSARY_WORDS
    assert set(words) >= DESIGN
    assert "docs/glossary.md" in LINK.findall(README.read_text(encoding="utf-8"))


EACH_DECISION = pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)


@EACH_DECISION
def test_a_decision_is_a_problem_a_decision_and_its_consequence(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= DECISION_LINES
    assert re.findall(r"^#+ .+$", prose(text), re.MULTILINE)[1:] == ["## Problem", "## Decision", "## Consequence"]
    assert text.startswith(f"# {int(page.stem[:4])}. ")


def test_the_indices_name_every_page_beside_them() -> None:
    for index in (ROOT / "docs" / "decisions" / "README.md", ROOT / "docs" / "lab" / "README.md"):
        named = set(LINK.findall(index.read_text(encoding="utf-8")))
        pages = {page.name for page in index.parent.glob("*.md")} - {index.name}
        assert pages <= named, index


@EACH_PAGE
def test_decisions_tests_and_files_it_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    numbers = {int(n) for n in re.findall(r"\bdecisions? (\d+)\b", text)}
    assert numbers <= {int(decision.stem[:4]) for decision in DECISIONS}
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert any((ROOT / "tests").rglob(name)), name
    for path in re.findall(r"`((?:autotune|trainer|api|search_spaces|benchmarks|tests|tools|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for room, name in re.findall(r"`(autotune|search_spaces)\.(?!sqlite)(\w+)[\w.]*`", text):
        there = (ROOT / room / name).exists() or (ROOT / room / f"{name}.py").exists()
        assert there or hasattr(importlib.import_module(room), name), f"{room}.{name}"


def words_of(line: str) -> list[str]:
    """A command line's words, without what only a shell reads of it."""
    return shlex.split(re.split(r" (?:\||&&|&|>|2>) ?|\s#", line)[0])


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that ``words`` name, and the words behind its name."""
    command, left = get_command(build_app()), list(words)
    while left and isinstance(command, TyperGroup) and not left[0].startswith("-"):
        word = left.pop(0)
        assert word in command.commands, " ".join(words)
        command = command.commands[word]
    return command, left


PLACEHOLDERS = {"TIME": "1h", "SIZE": "6GiB", "PRICE": "2.5"}
"""Any other capital letter in a block stands for a number."""


@EACH_PAGE
def test_every_command_in_a_block_is_one_that_its_own_parser_takes(page: Path) -> None:
    """Options, their values and the number of words; nothing is run."""
    blocks = "\n".join(FENCE.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    for line in re.findall(r"^ *(?:\$ )?(?:srun )?autotune (.+)$", blocks, re.MULTILINE):
        if "..." not in line:
            command, left = command_of(words_of(line))
            given = [PLACEHOLDERS.get(word, "1" if re.fullmatch("[A-Z]", word) else word) for word in left]
            command.make_context("autotune", given)


@EACH_PAGE
def test_every_command_in_the_words_of_a_page_has_the_options_it_is_given(page: Path) -> None:
    spans = re.findall(r"`autotune ([^`|]+)`", re.sub(r"\s+", " ", prose(page.read_text(encoding="utf-8"))))
    for span in spans:
        command, left = command_of(words_of(span))
        options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
        assert {word for word in left if re.fullmatch(r"--[a-z-]+", word)} <= options | {"--help"}, span


def installed_names(page: Path) -> list[str]:
    """What `pip install` is given in a page."""
    lines = re.findall(r"pip install ([^`\n]+)", page.read_text(encoding="utf-8"))
    return [word for line in lines for word in shlex.split(line.replace("\\", ""), comments=True)]


OURS = "grpo-autotune"


@EACH_PAGE
def test_no_package_is_named_that_cannot_be_installed(page: Path) -> None:
    """Nothing of ours has been released: it is installed by the checkout's path."""
    assert [word for word in installed_names(page) if word.startswith(OURS)] == []


def test_no_message_names_a_package_that_cannot_be_installed() -> None:
    told = [
        str(path)
        for top in ("api", "autotune", "trainer")
        for path in sorted((ROOT / top).rglob("*.py"))
        if re.search(rf"pip install [^\n]*{OURS}", path.read_text(encoding="utf-8"))
    ]
    assert told == []


@EACH_PAGE
def test_every_import_that_a_page_shows_works(page: Path) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "api",
            "autotune",
            "search_spaces",
        ):
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def adding() -> dict[str, str]:
    """The lists of CONTRIBUTING.md below "Adding things": title -> its lines."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Adding things\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_what_is_added_often_has_a_list() -> None:
    assert {"A framework", "A sampler", "A route"} <= set(adding())


@pytest.mark.parametrize("thing", sorted(adding()))
def test_adding_a_thing_touches_at_most_six_places_that_exist(thing: str) -> None:
    items = re.findall(r"^- (.+?):", adding()[thing], re.MULTILINE)
    places = [place for item in items for place in re.findall(r"`([^`]+)`", item)]
    assert 0 < len(places) <= PLACES
    assert [place for place in places if not (ROOT / place).exists()] == []
