"""Where no study has an answer the planner has one, which says so and stands beside no measured one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import predicting
from api.predicting import NOTHING_FITS
from api.routes.recommendations import NOT_PREDICTED, PREDICTED
from api.schemas.matches import Matches, PredictedItem
from autotune.forecast.accuracy import NONE
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.published_models import PUBLISHED
from tests.support.recorded import record
from tests.support.served import Reader, settings_in

QUESTION = "/api/v1/recommendations"
KNOWN = f"{QUESTION}?gpu=h100&gpus=1&params_b=0.5&max_completion_tokens=256"


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A home without a study."""
    reader = Reader(settings_in(tmp_path_factory.mktemp("nobody")))
    yield reader
    reader.cache.close()


def test_what_nobody_ran_is_predicted_and_says_so(nobody: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = predicting.plan_from_readings
    monkeypatch.setattr(predicting, "plan_from_readings", lambda *given: made.append(given) or real(*given))
    document = nobody.json(KNOWN)
    (item,) = Matches.model_validate(document).items
    assert isinstance(item, PredictedItem)
    assert document["reason"] == f"no study has an answer to this; {PREDICTED}"
    assert NOT_PREDICTED not in document["reason"]
    assert document["next_cursor"] is None
    assert (item.distance, item.differences) == (None, [])
    assert (item.accuracy.sentence, item.accuracy.recorded_trials) == (NONE, 0)
    assert any("framework trl" in words for words in item.presumed)
    assert any("layers are guessed" in words for words in item.presumed)
    assert item.load.max_completion_tokens == 256
    best = item.best[0]
    assert best.tokens_per_hour_low < best.tokens_per_hour < best.tokens_per_hour_high
    assert best.fits_probability >= 0.9
    assert best.peak_bytes <= best.capacity_bytes == item.machine.gpu_memory_bytes
    again = nobody.ask(KNOWN, headers={"If-None-Match": nobody.ask(KNOWN).headers["etag"]})
    assert again.status_code == 304
    assert len(made) == 1, "kept until a study changes"


def test_measured_answers_stand_alone(finished: Reader) -> None:
    for query in ("", "?gpus=8", "?framework=verl"):
        document = finished.json(QUESTION + query)
        assert {item["match"] for item in document["items"]} <= {"exact", "nearest"}
        assert document["items"]
        assert document["reason"].endswith(NOT_PREDICTED)
        assert "predicted from" not in document["reason"]


def test_a_study_without_an_answer_tells_how_far_it_is_and_what_its_model_is(
    reader: Reader, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(predicting.Predictor, "_predicted", lambda _, *given: seen.append(given) or (b"", "no"))
    store = open_store(settings.database)
    work = factories.workload(model="org/Small-1B")
    study = store.create_study(factories.study_spec(workload=work), factories.NOW)
    hardware = {"gpus": [{"name": "NVIDIA H200", "memory": 1}]}
    store.save_fingerprint(study.id, factories.fingerprint(hardware=hardware), factories.NOW)
    record(store, study, factories.failed(0))
    store.close()
    query = "?model=other/small-1b&gpu=h200&gpus=2&params_b=70&max_memory_bytes=5000000000"
    document = reader.json(QUESTION + query)
    assert document["items"] == []
    assert document["reason"].endswith("nothing is predicted: no")
    ((facts, recorded),) = seen
    assert facts.model == study.spec.resources.model, "what is known goes before what is said"
    assert (facts.memory, facts.gpus, facts.gpu) == (5_000_000_000, 2, "h200")
    assert [one.study.id for one in recorded] == [study.id], "it ran on such a GPU, so it tells of the accuracy"
    reader.json(f"{QUESTION}?gpu=a100&params_b=1")
    assert seen[1][1] == []


def test_the_second_page_is_never_predicted(finished: Reader) -> None:
    document = finished.json(f"{KNOWN}&cursor=1")
    assert document["items"] == []
    assert "predicted" not in document["reason"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "gpu is needed"),
        ("?gpu=h100", "params_b is needed"),
        ("?gpu=h100&model=/etc/passwd", "params_b is needed"),
        ("?gpu=cpu&params_b=1", "no figures for gpu 'cpu'"),
        ("?gpu=tpu&params_b=1", "known are t4"),
        ("?gpu=h100&params_b=1&gpus=0", "gpus must be at least 1"),
        ("?gpu=h100&params_b=1&gpus=9", "does not fill nodes of 8"),
        ("?gpu=h100&params_b=1&gpus=9007199254740991", "more than is looked at"),
        ("?gpu=h100&params_b=1&framework=deepspeed", "known are trl"),
        ("?gpu=h100&params_b=1&rows_per_update=9007199254740991", "more than is looked at"),
        ("?gpu=h100&params_b=1&max_completion_tokens=9007199254740991", "more than is looked at"),
    ],
)
def test_what_cannot_be_predicted_says_why(nobody: Reader, query: str, words: str) -> None:
    document = nobody.json(QUESTION + query)
    assert document["items"] == []
    assert "nothing is predicted: " in document["reason"]
    assert words in document["reason"]


def test_what_fits_nowhere_is_no_answer(nobody: Reader) -> None:
    document = nobody.json(f"{QUESTION}?gpu=l4&params_b=70&max_memory_bytes=1000000000")
    assert document["items"] == []
    assert document["reason"].endswith(NOTHING_FITS)


def test_no_file_is_read_for_a_name(nobody: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``autotune plan --model`` reads a folder; over the network that would tell strangers what is on the disk."""
    facts: list[Any] = []
    monkeypatch.setattr(predicting.Predictor, "_predicted", lambda _, *given: facts.append(given[0]) or (b"", "no"))
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["Qwen2.5-1.5B"][0]))
    nobody.json(f"{QUESTION}?gpu=h100&params_b=0.25&model={tmp_path}")
    assert facts[0].model.parameters == 250_000_000
    assert facts[0].model.layers is None


def test_one_at_a_time(nobody: Reader) -> None:
    predictor = nobody.app._app.state.predictor  # type: ignore[attr-defined]
    with predictor._lock:
        answer = nobody.ask(f"{QUESTION}?gpu=h100&gpus=1&params_b=0.75")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "another reader" in answer.json()["detail"]
