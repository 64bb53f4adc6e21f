"""``autotune sweep`` of a stored study: a table and nothing run; what cannot be is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli.commands.sweep import as_sweep, planned_sentence, summary
from autotune.domain import SWEEP, Study
from autotune.proposals.sweep import SweepProposer
from autotune.specification.prepare import Prepared
from autotune.specification.request import Request
from autotune.tables.files import read
from autotune.tables.sweep import Again
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.unit.cli.conftest import Run


def test_the_table_of_a_stored_study(autotune: Run, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl.gz"
    code, out, err = autotune("sweep", study.spec.name, "--export", str(path))
    assert (code, err) == (0, "")
    table = read(path)
    assert "3 rows" in out
    assert [row.trial.number for row in table.rows] == [0, 1, 2]
    assert table.header.study == study.spec.name


def test_as_json(autotune: Run, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    code, out, _ = autotune("sweep", study.spec.name, "--export", str(path), "--json")
    assert code == 0
    assert json.loads(out) == {"study": study.spec.name, "table": str(path)}


def test_a_stored_study_needs_a_place_for_its_table(autotune: Run, study: Study) -> None:
    code, out, err = autotune("sweep", study.spec.name)
    assert (code, out) == (2, "")
    assert "--export" in err
    assert err.count("\n") == 1


def test_an_unknown_study_and_a_name_that_is_none_of_a_table(autotune: Run, study: Study, tmp_path: Path) -> None:
    code, _, err = autotune("sweep", "frist", "--export", str(tmp_path / "x.jsonl"))
    assert code == 2
    assert "did you mean 'first'" in err
    code, _, err = autotune("sweep", study.spec.name, "--export", str(tmp_path / "x.csv"))
    assert code == 2
    assert ".jsonl or .jsonl.gz" in err
    assert list(tmp_path.glob("x*")) == []


def test_a_sweep_reads_the_script_of_the_rollout_server(
    autotune: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``start`` does."""
    asked: list[Request] = []
    monkeypatch.setattr("autotune.wiring.prepare", lambda request, *_: asked.append(request) or pytest.fail("enough"))
    (tmp_path / "grpo.yaml").write_text("use_vllm: true\nvllm_mode: server\n")
    (tmp_path / "serve.sh").write_text("trl vllm-serve --model m\n")
    for command in (("sweep",), ("start", "--max-trials", "3")):
        words = (*command, "--server", str(tmp_path / "serve.sh"), "--config", str(tmp_path / "grpo.yaml"))
        with pytest.raises(pytest.fail.Exception, match="enough"):
            autotune(*words)
    assert [request.server for request in asked] == ["trl vllm-serve --model m\n"] * 2
    code, _, err = autotune("sweep", "--server", str(tmp_path / "serve.sh"))
    assert code == 2
    assert err.startswith("autotune: --server is the script that starts a rollout server beside a configuration of TRL")


def test_a_sweep_is_a_study_of_its_own() -> None:
    prepared = Prepared(f.study_spec("mine"), f.fingerprint(), 8, 8)
    spec = as_sweep(prepared, None).spec
    assert (spec.name, spec.sampler) == ("mine-sweep", SWEEP)
    assert spec.digest != prepared.spec.digest
    assert as_sweep(prepared, "named").spec.name == "named"


def test_the_plan_says_rows_combinations_and_processes() -> None:
    knobs = {"micro_batch_size": [1, 2, 4, 8], "attn_implementation": ["sdpa", "eager"]}
    space = SearchSpace.from_json({"knobs": knobs})
    sweep = SweepProposer(space, f.configuration(), f.resources(), rows=6, same_learning=False, seed=0)
    said = planned_sentence(sweep, Again(2, 3), "cuda")
    assert said == "6 rows of 8 legal combinations, in at least 2 processes; then the 2 fastest 3 times again"
    said = planned_sentence(sweep, Again(2, 3), "cpu")
    assert said == "6 rows of 8 legal combinations, each in a process; then the 2 fastest 3 times again"
    assert planned_sentence(sweep, Again(0, 3), "cpu") == "6 rows of 8 legal combinations, each in a process"


def test_the_end_counts_rows_failures_and_what_is_left() -> None:
    trials = (f.finished(0), f.failed(1), f.finished(2, cycle_seconds=5.0), f.trial(3))
    found = summary(trials, 4, Again(2, 3))
    assert found[0] == "rows     3, 4 still to be run"
    assert found[1] == "failed   OOM 1"
    assert found[3].startswith("fastest  322.6k tokens/hour")
    assert "repeats" not in found[3]
    assert summary(trials, 0, Again(2, 3))[3].endswith("6 repeats still to be run")
