"""Numbers that people wrote, however long."""

from __future__ import annotations

import pytest

from search_spaces.knobs.model import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("0" * 5000, 0),
        ("0" * 5000 + "12", 12),
        ("9" * 20, 10**20 - 1),
        ("9" * 21, None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        ("\u00b2", None),
        ("\u0663", 3),
    ],
)
def test_a_whole_number(text: str, number: int | None) -> None:
    assert whole_number(text) == number
