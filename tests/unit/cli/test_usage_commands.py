"""``show``, ``compare`` and ``report`` on two trials recorded on an H100."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.domain import Study
from autotune.settings import HomePaths, read_settings
from tests.support import recorded_gpu
from tests.unit.cli.conftest import Run

BLAMED = "the host: the GPU was busy 51 % of the update while the trial used 1.0 cores all along"


@pytest.fixture
def h100(home: HomePaths) -> Study:
    settings = read_settings()
    settings.home.prepare()
    return recorded_gpu.stored(settings)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_show_says_whether_the_speed_is_normal_and_what_was_used(h100: Study, autotune: Run) -> None:
    code, out, _ = autotune("show", "0")
    assert code == 0
    assert BLAMED in flat(out)
    assert "of what this GPU could do at most, if nothing ever waited" in flat(out)
    assert "energy 0.292 J for a completion token, 355 W" in flat(out)
    lines = [line.split() for line in out.splitlines()]
    assert ["generate", "69", "%", "51", "%", "1973", "377", "-"] in lines
    assert ["whole", "cycle", "60", "%", "40", "%", "1976", "355", "1.0"] in lines
    assert ["1", "sampled", "23", "%", "1.0", "0"] in lines
    assert max(len(line) for line in out.splitlines()) <= 80


def test_show_as_json_has_the_same(h100: Study, autotune: Run) -> None:
    trial = json.loads(autotune("show", "1", "--json")[1])["trial"]
    assert trial["usage"]["blame"]["resource"] == "host"
    assert trial["usage"]["phases"]["update"]["gpu"]["busy_share"] == pytest.approx(0.51, abs=0.01)
    assert trial["cycles"][1]["gpu"]["update"]["samples"] >= 7


def test_compare_shows_the_use_of_both(h100: Study, autotune: Run) -> None:
    _, out, _ = autotune("compare", "0", "1")
    assert "GPU busy 60 % 46 % GPU power 355 W 311 W energy of a token 0.292 J 0.178 J cores used 1.0 1.0" in flat(out)
    document = json.loads(autotune("compare", "0", "1", "--json")[1])
    assert document["a"]["usage"]["joules_per_token"] > document["b"]["usage"]["joules_per_token"]


def test_the_report_has_the_reference_and_the_answer(h100: Study, autotune: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    code, _, err = autotune("report", "--output", str(file))
    assert code == 0, err
    text = file.read_text()
    part = text[text.index("## What the GPU and the host did") : text.index("## Why")]
    assert BLAMED in flat(part)
    assert "| generate | 69 % | 51 % | 1973 | 377 | - |" in part
    assert "trial #1" in part
