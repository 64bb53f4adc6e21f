"""The prior of times on recorded tables: in what order it has their rows, engine by engine and stage by stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import every_knob_table, time_prior

pytestmark = pytest.mark.full

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"
RANKS = TABLES / "search-cpu-14m-ranks.jsonl.gz"


def test_two_ranks_are_ordered_by_the_prior_alone_on_two_machines() -> None:
    """What ranks exchange was chosen with both in view: a regression test, no validation."""
    for found in (time_prior.of_every_knob(), time_prior.of_table(RANKS)):
        level, scatter, own, order = time_prior.summary(found)
        assert len(found) > 20
        assert abs(level) < 0.5
        assert scatter < 0.65 * own
        assert order > 0.7
        stages = {stage for _, stage in time_prior.by_group(found)}
        assert stages == {0, 2, 3}
        updates = [phases["update"] for phases in time_prior.by_group(found).values()]
        assert max(updates) - min(updates) < 0.4, "no stage is thought cheap beside the others"


def test_seconds_of_the_recorded_table_belong_to_its_trials() -> None:
    trials, seconds = every_knob_table.trials(), every_knob_table.seconds()
    assert len(trials) == len(seconds)
    for trial, of in zip(trials, seconds, strict=True):
        assert of["update"] > 0
        assert (of["sync"] > 0) == (trial.configuration["rollout_engine"] == "vllm")


def test_orders_that_agree_correlate() -> None:
    rising = np.array([1.0, 2.0, 5.0, 9.0])
    assert time_prior.correlation(rising, np.exp(rising)) == pytest.approx(1.0)
    assert time_prior.correlation(rising, -rising) == pytest.approx(-1.0)


def test_the_command_prints_a_paragraph_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert time_prior.main(["--every-knob", "--table", str(RANKS)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("search-cpu-14m-ranks: 80 configurations")
    assert [line.split(":")[0].strip() for line in said[1:4]] == [f"transformers, ZeRO {stage}" for stage in (0, 2, 3)]
    assert said[4].startswith("every-knob: 23 configurations")


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert time_prior.main(["--table", str(tmp_path / "none.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(SystemExit) as stopped:
        time_prior.main([])
    assert stopped.value.code == 2
