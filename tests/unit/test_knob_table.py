"""The tables framework x knob: what a cell says is what the catalogue says, and the rest of a document stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.frameworks import SHORT, TITLES, resolved
from search_spaces.knobs import FRAMEWORKS, KNOBS, Reach
from tools import knob_table
from tools.knob_table import BEGIN, END, MarkerError, replaced

PLACES = [(knob, framework) for knob in KNOBS for framework in FRAMEWORKS]


def cells(table: str) -> dict[tuple[str, str], str]:
    """(knob, framework) -> cell."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    names = {TITLES[f]: f for f in FRAMEWORKS}
    return {
        (row[0].strip("`"), names[title]): cell for row in rows for title, cell in zip(head[1:], row[1:], strict=True)
    }


def test_every_knob_is_told_for_every_framework() -> None:
    found = cells(knob_table.whole_table())
    assert sorted(found) == sorted(PLACES)
    for (name, framework), cell in found.items():
        setting = KNOBS[name].frameworks.get(framework)
        if setting is None:
            assert cell == "no"
        elif setting.reach is Reach.NATIVE and setting.key == name:
            assert cell == "yes"
        else:
            said, _, key = cell.partition(": ")
            assert said == ("outside" if setting.reach is Reach.SEAM else "renamed")
            assert key.strip("`").replace("\\|", "|") == setting.key


def test_the_document_holds_the_table_of_the_catalogue() -> None:
    assert knob_table.main(["--check"]) == 0


@given(before=st.text(max_size=80), after=st.text(max_size=80), old=st.text(max_size=80))
def test_what_is_not_between_the_markers_stays(before: str, after: str, old: str) -> None:
    made = replaced(f"{before}{BEGIN}{old}{END}{after}", "the table", "it")
    assert made == f"{before}{BEGIN}\n\nthe table\n\n{END}{after}"
    assert replaced(made, "the table", "it") == made


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{END}"])
def test_a_document_without_a_place_is_refused(text: str) -> None:
    with pytest.raises(MarkerError, match=r"README\.md needs"):
        replaced(text, "the table", "README.md")


def test_a_framework_is_found_by_both_its_names() -> None:
    assert tuple(SHORT) == FRAMEWORKS == tuple(TITLES)
    assert len({*SHORT.values()}) == len(SHORT)
    assert all(resolved(short) == name == resolved(name) for name, short in SHORT.items())
    assert resolved("megatron") == "megatron"
