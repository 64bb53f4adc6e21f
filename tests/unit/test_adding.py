"""A change of what CONTRIBUTING.md lists, and of no other file, brings a knob or a figure of a cycle everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search_spaces.knobs import FRAMEWORKS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "autotune", "search_spaces", "tests", "tools", "trainer")
MOST = 5
A_KNOB, A_FIGURE = "A knob that the framework has a setting for", "A figure of a cycle"

KNOB = """    number(
        name="made_up",
        phases=UPDATE,
        restart=Restart.ENGINE,
        bounds=(0, 9),
        frameworks=same(native("made_up_key", 1), verl=native("trainer.made_up_key", 1)),
        summary="a knob of this test",
    ),
)
"""
FIELD = "    process: Optional[ProcessUse] = None\n"
FIGURE = "    made_up_seconds: Optional[float] = None\n"
SHAPE = "    process: ProcessUse | None = Field("
SHOWN = '    made_up_seconds: Seconds | None = Field(description="A figure of this test.")\n'


def places(thing: str) -> list[str]:
    """What the list of ``thing`` in CONTRIBUTING.md names, in its order."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"\n### {thing}\n")[2].partition("\n### ")[0]
    return re.findall(r"^- `([^`]+)`", section, re.MULTILINE)


@pytest.mark.parametrize("thing", [A_KNOB, A_FIGURE])
def test_the_list_is_short(thing: str) -> None:
    assert 0 < len(places(thing)) <= MOST


def changed(directory: Path, thing: str, path: str, before: str, after: str) -> None:
    """``before`` replaced in a copy of ``path``'s package; the other packages of the checkout are linked beside it.

    A file that the list of ``thing`` does not name is refused.
    """
    assert any(path == place or path.startswith(f"{place}/") for place in places(thing)), path
    package = path.partition("/")[0]
    for name in PACKAGES:
        if not (directory / name).exists():
            (directory / name).symlink_to(ROOT / name)
    if (directory / package).is_symlink():
        (directory / package).unlink()
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (directory / path).read_text(encoding="utf-8")
    assert before in text
    (directory / path).write_text(after.join(text.rsplit(before, 1)), encoding="utf-8")


def result_of(directory: Path, module: str, *words: str, **environment: str) -> Any:
    """What ``module`` of this checkout prints, as JSON, when it runs in the changed copy."""
    argv, there = [sys.executable, "-m", module, *words], {**os.environ, **environment}
    run = subprocess.run(argv, cwd=directory, env=there, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_knob_in_the_catalogue_reaches_every_framework_and_the_space_file(tmp_path: Path) -> None:
    changed(tmp_path, A_KNOB, "search_spaces/knobs/kernels.py", ")\n", KNOB)
    found = result_of(tmp_path, "tests.support.made_up_knob")
    assert set(found["frameworks"]) == set(FRAMEWORKS)
    for name, answers in found["frameworks"].items():
        assert answers == {"supported": True, "rendered": 3, "exported": True, "imported": 3}, name
    assert found["space"] == [1, 3]
    assert "from 0 to 9" in found["refused"]
    assert found["restart"] == 1
    assert "| `made_up` | renamed: `made_up_key` |" in found["row"]


def test_a_figure_of_a_cycle_is_stored_shown_and_described(tmp_path: Path) -> None:
    changed(tmp_path, A_FIGURE, "trainer/child/contract/shapes.py", FIELD, FIGURE + FIELD)
    changed(tmp_path, A_FIGURE, "api/schemas/trials.py", SHAPE, SHOWN + SHAPE)
    found = result_of(tmp_path, "tests.support.made_up_figure")
    assert found == {"wire": 2.5, "stored": 2.5, "older": None, "shown": 2.5, "described": "A figure of this test."}


def test_a_framework_of_another_package_is_imported_tried_and_exported(tmp_path: Path) -> None:
    package = str(ROOT / "tests" / "support" / "made_up_package")
    found = result_of(ROOT, "tests.support.made_up_framework", str(tmp_path / "attempt"), PYTHONPATH=package)
    assert found["refused"] == "there is no framework 'made_upp' yet; did you mean made_up"
    assert (found["title"], found["failure"], found["cycles"]) == ("Made Up", "", 1)
    assert found["imported"] == {"micro_batch_size": 2, "gradient_checkpointing": True}
    assert found["ran"] == [{"rows": 2, "own": "word"}]
    assert {"rows: 2", "checkpointing: True", "group: 4"} <= {*found["exported"].splitlines()}
