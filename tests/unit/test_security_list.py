"""What docs/security.md says was tried is what tests try."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [line for line in LIST.partition("## What was tried")[2].splitlines() if line.startswith("| ")][1:]
DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def named(row: str) -> list[tuple[str, list[str]]]:
    """Each file of a row with the tests in brackets behind it; of none the file itself is meant."""
    found = re.findall(r"`(test_\w+\.py)`(?: \(the same\))?(?: \[([^\]]+)\])?", row)
    return [(file, re.findall(r"test_\w+", tests)) for file, tests in found]


def test_every_attack_has_a_test_and_every_test_is_there() -> None:
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(ROWS) >= 30
    for row in ROWS:
        assert row.count(" | ") == 2, row
        assert named(row), row
        for file, tests in named(row):
            defined = DEFINED.findall(files[file].read_text(encoding="utf-8"))
            assert set(tests) <= set(defined), (file, set(tests) - set(defined))


def test_what_the_design_asks_for_is_tried() -> None:
    for attack in ("rebinding", "cross-site POST", "token in the address", "oversized body", "path traversal", "ANSI"):
        assert any(attack in row for row in ROWS), attack
    for hostile in ("a script in a knob's value", "a script in a log line"):
        assert any(hostile in row for row in ROWS), hostile
