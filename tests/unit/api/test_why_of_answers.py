"""The answer over HTTP says why, as the command line does."""

import json

import pytest

from api.schemas.answers import Answer
from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import Reader

PATH = "/api/v1/studies/1/recommendation"


def test_it_is_what_the_command_line_prints(
    finished: Reader, finished_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    document = finished.json(PATH)
    Answer.model_validate(document)
    capsys.readouterr()
    arguments = ["best", "--json", "--home", str(finished_home.home.root)]
    assert exit_code_of(lambda: build_app()(arguments, prog_name="autotune")) == 0
    assert document == json.loads(capsys.readouterr().out)
    why = document["why"]
    assert [row["title"] for row in why["rows"]] == [row["title"] for row in document["recommendation"]["rows"]]
    assert any(row["shares"]["knobs"] for row in why["rows"])
    assert {ruled["by"] for ruled in why["ruled_out"]} >= {"memory"}, "the simulated machine runs out of memory"


def test_it_follows_the_trials(reader: Reader, settings: Settings, study: Study) -> None:
    before = reader.ask(PATH)
    assert before.json()["why"]["rows"][0]["shares"]["words"]
    store = open_store(settings.database)
    best = factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1, precision="bf16")
    store.close()
    assert reader.ask(PATH, headers={"If-None-Match": before.headers["etag"]}).status_code == 304
    store = open_store(settings.database)
    record(store, study, factories.finished(5, cycle_seconds=2.0, configuration=best))
    store.close()
    after = reader.ask(PATH, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["why"] != before.json()["why"]


def test_nothing_recommended_has_no_why(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    made = store.create_study(factories.study_spec(), factories.NOW)
    store.close()
    assert reader.json(f"/api/v1/studies/{made.id}/recommendation")["why"] is None


def test_a_space_of_another_version_takes_no_answer_away(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    made = store.create_study(factories.study_spec(space={"knobs": {"nobody_knows_this": [1, 2]}}), factories.NOW)
    record(store, made, factories.finished(0))
    store.close()
    document = reader.json(f"/api/v1/studies/{made.id}/recommendation")
    assert document["recommendation"]["rows"]
    assert document["why"] is None
    assert reader.crashes == []
