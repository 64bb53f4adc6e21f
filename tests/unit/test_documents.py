"""Links, commands, modules and files that the documents name exist, and the documents keep their limits of length."""

from __future__ import annotations

import re
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
        assert (ROOT / room / name).exists() or (ROOT / room / f"{name}.py").exists(), f"{room}.{name}"


@EACH_PAGE
def test_autotune_has_every_command_and_option_it_shows(page: Path) -> None:
    blocks = "\n".join(FENCE.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    for line in re.findall(r"^(?:\$ )?autotune (.+)$", blocks, re.MULTILINE):
        command: Any = get_command(build_app())
        words = line.partition(" #")[0].split()
        while words and isinstance(command, TyperGroup):
            word = words.pop(0)
            command = command.commands.get(word)
            assert command is not None, line
        options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
        assert {word for word in words if re.fullmatch(r"--[a-z-]+", word)} - options == set(), line


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
