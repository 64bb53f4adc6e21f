"""A stored study as a table: what each trial was, and every trial whole as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import TrialDraft, TrialKind
from autotune.insights.roofline import ideal_rate
from autotune.machine.data_sheets import SHEETS
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.gpu import study_table
from benchmarks.gpu.architectures import ARCHITECTURES
from benchmarks.gpu.journal import trial_of
from tests.support import factories

TABLES = Path(study_table.__file__).parents[1] / "tables"
HEAD: dict[str, Any] = {
    "measures_a_gpu": True,
    "hardware": {"gpus": [{"name": "NVIDIA H100 80GB HBM3"}]},
    "model": {
        "parameters": 494_032_768,
        "layers": 24,
        "hidden_size": 896,
        "attention_heads": 14,
        "key_value_heads": 2,
    },
    "recorded_lengths_tokens": list(factories.LENGTHS),
}


def test_each_trial_has_a_line_with_what_was_changed_and_how_it_ended() -> None:
    baseline = factories.finished(0, configuration=factories.configuration())
    changed = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=1)
    ran_out = factories.failed(1, factories.oom(phase="update"), configuration=changed, source="move/headline")
    head, _, first, second = study_table.table([baseline, ran_out])
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (head, first, second)]
    assert len({len(row) for row in cells}) == 1
    named = [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
    assert named[0]["differs from the baseline"] == "the baseline"
    assert named[0]["ended"] == "ok"
    assert float(named[0]["tokens/hour"].removesuffix("M")) * 1e6 == pytest.approx(baseline.tokens_per_hour, abs=501)
    assert named[1]["differs from the baseline"] == "micro_batch_size 4", "the accumulation follows from it"
    assert named[1]["ended"].startswith("OOM in update")
    assert named[1]["tokens/hour"] == named[1]["generate s"] == ""


def test_the_file_holds_every_trial_whole_and_no_path_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, out = tmp_path / "home", tmp_path / "table.jsonl"
    settings = read_settings(environ={}, home=home)
    settings.home.prepare()
    store = open_store(settings.database)
    study = store.create_study(factories.study_spec(name="stored"), 1.0)
    store.add_trial(
        study.id,
        TrialDraft(TrialKind.BASELINE, study.spec.baseline, factories.trial(0).protocol, 16, source="baseline"),
        2.0,
    )
    trials = store.trials(study.id)
    store.close()
    assert study_table.main([str(home), "stored", str(out)]) == 0
    assert "| 0 | baseline | the baseline | did not end |" in capsys.readouterr().out
    header, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert header["row"] == "header"
    assert [trial_of(row, "here").configuration for row in rows] == [t.configuration for t in trials]
    assert str(tmp_path) not in out.read_text()
    assert study_table.main([str(out)]) == 0
    assert "| 0 | baseline | the baseline | did not end |" in capsys.readouterr().out


def test_a_study_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = read_settings(environ={}, home=tmp_path)
    settings.home.prepare()
    open_store(settings.database).close()
    assert study_table.main([str(tmp_path), "another"]) == 2
    assert capsys.readouterr().err == "error: there is no study 'another'\n"


def test_no_arguments_say_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_table.main([]) == 2
    assert "HOME STUDY" in capsys.readouterr().err


def test_the_share_is_of_what_the_gpu_could_do_with_that_model_and_those_lengths() -> None:
    trial = factories.finished(0)
    roof = study_table.roof_of(HEAD)
    assert roof is not None
    cycles = trial.speed_cycles()
    prompt = sum(c.prompt_tokens for c in cycles) / sum(c.rows for c in cycles)
    shape, peak = ARCHITECTURES["qwen2.5-0.5b"], SHEETS["H100"]
    most = ideal_rate(shape, peak, prompt, factories.LENGTHS, 1)
    assert trial.tokens_per_hour is not None
    assert roof.share(trial) == pytest.approx(trial.tokens_per_hour / most)
    slower = trial.with_(cycles=tuple(replace(c, seconds=2 * c.seconds) for c in trial.cycles))
    assert roof.share(slower) == pytest.approx(trial.tokens_per_hour / most / 2)


def test_rows_that_are_generated_for_several_updates_are_decoded_together() -> None:
    """Weights are read once for all of them: the same tokens/hour are a smaller share of what is possible."""
    trial, roof = factories.finished(0), study_table.roof_of(HEAD)
    assert roof is not None
    whole = tuple(
        replace(c, rows=4 * c.rows, completion_tokens=4 * c.completion_tokens, prompt_tokens=4 * c.prompt_tokens)
        for c in trial.cycles
    )
    wider = trial.with_(cycles=tuple(replace(c, seconds=4 * c.seconds) for c in whole))
    assert wider.tokens_per_hour == pytest.approx(trial.tokens_per_hour)
    one, four = roof.share(trial), roof.share(wider)
    assert one is not None
    assert four is not None
    assert four < one


def test_what_has_no_figure_has_no_share() -> None:
    roof = study_table.roof_of(HEAD)
    assert roof is not None
    assert roof.share(factories.failed(1, factories.oom(phase="update"))) is None
    emulated = factories.configuration(precision="fp8", fp8_emulate=True)
    assert roof.share(factories.finished(2, configuration=emulated)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"measures_a_gpu": False},
        {"hardware": None},
        {"hardware": {"gpus": []}},
        {"hardware": {"gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]}},
        {"hardware": {"gpus": [{"name": "Example 1"}]}},
        {"model": {**HEAD["model"], "layers": None}},
        {"recorded_lengths_tokens": []},
    ],
)
def test_no_roofline_rather_than_a_wrong_one(change: dict[str, Any]) -> None:
    assert study_table.roof_of({**HEAD, **change}) is None
    rows = study_table.table([factories.finished(0)], study_table.roof_of({**HEAD, **change}))
    assert "roofline" not in rows[0]


@pytest.mark.parametrize("path", sorted(TABLES.glob("h100-study-*.jsonl")), ids=lambda path: path.stem)
def test_the_recorded_summary_shows_what_the_recorded_trials_say(path: Path) -> None:
    head, trials = study_table.recorded(path)
    written = (TABLES / "h100-studies-2026-11-22.md").read_text().splitlines()
    rows = study_table.table(trials, study_table.roof_of(head))
    assert "of the roofline" in rows[0]
    assert [row for row in rows if row not in written] == []


@pytest.mark.parametrize("text", ["", "not JSON\n", '{"row":"header"}\n', '{"row":"trial","number":0}\n'])
def test_another_file_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(text)
    for path in (other, tmp_path, tmp_path / "missing.jsonl"):
        assert study_table.main([str(path)]) == 2
        assert capsys.readouterr().err == f"error: {path}: no file of trials that this command wrote\n"
