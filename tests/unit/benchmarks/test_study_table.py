"""A stored study as a table: what each trial was, and every trial whole as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.domain import TrialDraft, TrialKind
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks import study_table
from benchmarks.gpu.journal import trial_of
from tests import factories


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


def test_a_study_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = read_settings(environ={}, home=tmp_path)
    settings.home.prepare()
    open_store(settings.database).close()
    assert study_table.main([str(tmp_path), "another"]) == 2
    assert capsys.readouterr().err == "error: there is no study 'another'\n"


def test_no_arguments_say_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_table.main([]) == 2
    assert "HOME STUDY" in capsys.readouterr().err
