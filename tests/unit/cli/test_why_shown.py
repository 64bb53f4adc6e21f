"""``autotune best`` and ``autotune report`` say why."""

from __future__ import annotations

import json
import re
from pathlib import Path

from autotune.domain import EarlierStudy, PriorKnowledge, Study
from autotune.settings import HomePaths
from autotune.store import open_store
from tests.unit.cli.conftest import Run


def test_best_says_what_each_knob_contributes_and_what_was_ruled_out(autotune: Run, study: Study) -> None:
    code, out, _ = autotune("best", "--why")
    assert code == 0
    flat = " ".join(out.split())
    assert "each knob" in flat
    assert re.search(r"micro_batch_size 4: \+[\d.]+ % \([+-][\d.]+ % to \+[\d.]+ %\)", flat)
    assert re.search(r"together \+[\d.]+ %, by one model of 2 trials; proven: micro_batch_size", flat)
    assert "micro_batch_size 4 -> 8: OOM in update (host), #2" in flat
    assert "ruled out" in flat


def test_both_say_it_as_data(autotune: Run, study: Study) -> None:
    best = json.loads(autotune("best", "--json")[1])
    code, out, err = autotune("report", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["why"] == best["why"]
    assert report["recommendation"] == best["recommendation"]
    assert [t["number"] for t in report["trials"]] == [0, 1, 2, 3, 4]
    (knob,) = best["why"]["rows"][0]["shares"]["knobs"]
    assert knob["changes"] == [{"knob": "micro_batch_size", "before": 2, "after": 4}]


def test_the_report_has_a_section(autotune: Run, study: Study) -> None:
    text = autotune("report")[1]
    assert "\n## Why\n" in text
    assert "\n- micro_batch_size 4: +" in text.replace("`", "")


def test_both_name_the_earlier_study_the_search_began_with(autotune: Run, study: Study, home: HomePaths) -> None:
    store = open_store(home.database)
    earlier = EarlierStudy(7, "small", (0, 3), 1.0, "study 'small': 4 cores instead of 2 (1.0 doublings away)")
    store.set_beforehand(study.id, PriorKnowledge({}, (earlier,)))
    store.close()
    words = "2 trials of study 'small': 4 cores instead of 2 (1.0 doublings away)"
    assert words in " ".join(autotune("best", "--why")[1].split())
    assert words in autotune("report")[1]
    assert json.loads(autotune("best", "--json")[1])["why"]["began"] == [words]


def test_data_and_a_file_exclude_each_other(autotune: Run, study: Study, tmp_path: Path) -> None:
    code, out, err = autotune("report", "--json", "-o", str(tmp_path / "r.md"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not list(tmp_path.glob("r.*"))
