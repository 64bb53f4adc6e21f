"""What should I train with? Answers of the studies nearest to a machine and workload that was not tuned."""

from typing import Any

import pytest

from api.schemas import examples, matches
from api.schemas.answers import Answer
from api.schemas.trials import Trials
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from search_spaces.frameworks import resolved
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import Reader, settings_in, whole_study

QUESTION = "/api/v1/recommendations"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two ended studies of one model, with short and with long completions."""
    settings = settings_in(tmp_path_factory.mktemp("two"))
    for name, length in (("small", 128), ("long", 1024)):
        work = factories.workload(max_completion_length=length, model="org/Small-1B")
        whole_study(settings, name, workload=work)
    reader = Reader(settings)
    yield reader
    reader.cache.close()


def test_the_nearest_study_answers_and_says_how_far_it_is(two: Reader) -> None:
    query = "?model=other/small-1b&framework=trl&gpu=cpu&gpus=0&max_completion_tokens=900"
    document = two.json(QUESTION + query)
    matches.Matches.model_validate(document)
    near, far = document["items"]
    assert [near["study"]["name"], far["study"]["name"]] == ["long", "small"]
    assert near["match"] == far["match"] == "nearest"
    assert [d["name"] for d in near["differences"]] == ["max_completion_tokens"]
    assert near["differences"][0]["sentence"] == "max_completion_tokens 1024 instead of 900: 0.19 doublings"
    assert near["distance"] == sum(d["distance"] for d in near["differences"]) < far["distance"]
    answer = two.json(f"/api/v1/studies/{near['study']['id']}/recommendation")
    assert near["shares"] == answer["why"]["rows"][0]["shares"]
    own = answer["recommendation"]
    assert near["recommendation"] == own
    assert near["row"] == own["rows"][0]
    assert document["reason"].startswith("no study is exactly of what was asked for; the first here differs in max_c")


def test_what_was_tuned_is_an_exact_answer(two: Reader) -> None:
    document = two.json(f"{QUESTION}?model=Small-1B&params_b=0.13&gpu=cpu&gpus=0&max_completion_tokens=128&limit=1")
    (item,) = document["items"]
    assert (item["match"], item["distance"], item["differences"]) == ("exact", 0, [])
    assert item["study"]["name"] == "small"
    assert document["reason"].startswith("measured on what was asked for")
    assert "nothing is predicted here" in document["reason"]


def test_items_are_paged_each_once(two: Reader) -> None:
    first = two.ask(f"{QUESTION}?limit=1&max_completion_tokens=900")
    assert first.json()["next_cursor"]
    second = two.ask(first.links["next"]["url"]).json()
    assert second["next_cursor"] is None
    names = [d["items"][0]["study"]["name"] for d in (first.json(), second)]
    assert names == ["long", "small"]
    assert two.ask(f"{QUESTION}?cursor=x").status_code == 422


def test_memory_is_a_limit_and_not_a_distance(reader: Reader, settings: Settings, study: Study) -> None:
    """The fastest needs 2.5 GiB; who has less is given the fastest that was measured below."""
    store = open_store(settings.database)
    small = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8)
    cycles = tuple(factories.cycle(i, seconds=7.0, peaks={}) for i in range(3))
    light = factories.finished(5, configuration=small, watchdog_peak=factories.GIB).with_(cycles=cycles)
    record(store, study, light)
    store.close()

    def asked(limit: int) -> Any:
        return reader.json(f"{QUESTION}?max_memory_bytes={limit}")

    assert asked(4 * factories.GIB)["items"][0]["row"]["configuration"]["micro_batch_size"] == 4
    (item,) = asked(2 * factories.GIB)["items"]
    assert item["row"]["configuration"]["micro_batch_size"] == 1
    assert item["row"]["host_peak_bytes"] == factories.GIB
    assert item["recommendation"]["rows"][0]["configuration"]["micro_batch_size"] == 4
    none = asked(factories.GIB // 2)
    assert none["items"] == []
    assert "1 study with nothing measured within 536870912 bytes left out" in none["reason"]


def test_a_gpu_is_known_by_the_name_in_its_fingerprint(reader: Reader, settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    hardware = {"gpus": [{"name": "NVIDIA H200", "memory": 1}]}
    store.save_fingerprint(study.id, factories.fingerprint(hardware=hardware), factories.NOW)
    store.close()
    assert reader.json(f"{QUESTION}?gpu=h200")["items"][0]["match"] == "exact"
    other = reader.json(f"{QUESTION}?gpu=a100")
    assert not [item for item in other["items"] if item["match"] != "predicted"], "another GPU's settings are far"
    assert "no study is near what was asked for" in other["reason"]
    (difference,) = other["far"][0]["differences"]
    assert difference["sentence"] == "gpu NVIDIA H200 instead of a100"


@pytest.mark.parametrize(
    "query", ["params_b=nan", "params_b=0", "params_b=inf", "gpus=x", "max_memory_bytes=-1", "gpu=", "device=cpu"]
)
def test_what_is_no_question(two: Reader, query: str) -> None:
    answer = two.ask(f"{QUESTION}?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"query.{query.partition('=')[0]}"


def test_the_answer_as_the_frameworks_own_file(two: Reader) -> None:
    answer = two.ask("/api/v1/studies/1/recommendation?format=trl")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/yaml")
    assert answer.headers["content-disposition"] == 'attachment; filename="grpo.yaml"'
    row = two.json("/api/v1/studies/1/recommendation")["recommendation"]["rows"][0]
    assert f"per_device_train_batch_size: {row['configuration']['micro_batch_size']}\n" in answer.text
    again = two.ask("/api/v1/studies/1/recommendation?format=trl", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(("query", "status"), [("format=megatron", 422), ("format=trl&row=3", 422), ("file=x", 422)])
def test_a_file_of_nothing(two: Reader, query: str, status: int) -> None:
    assert two.ask(f"/api/v1/studies/1/recommendation?{query}").status_code == status


def test_a_file_that_cannot_be_had_is_a_conflict_with_the_reason(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    store.create_study(factories.study_spec(), factories.NOW)
    store.create_study(factories.study_spec("other", framework="verl"), factories.NOW)
    store.close()
    answer = reader.ask("/api/v1/studies/1/recommendation?format=trl")
    assert (answer.status_code, "no feasible configuration" in answer.json()["detail"]) == (409, True)
    answer = reader.ask("/api/v1/studies/2/recommendation?format=trl")
    assert (answer.status_code, "is of verl" in answer.json()["detail"]) == (409, True)


OWN_FILES = {
    "trl": ("grpo.yaml", "application/yaml", "per_device_train_batch_size: 4\n"),
    "openr1": ("recipe.yaml", "application/yaml", "per_device_train_batch_size: 4\n"),
    "swift": ("grpo.yaml", "application/yaml", "per_device_train_batch_size: 4\n"),
    "verl": ("run.sh", "text/x-shellscript", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"),
}


@pytest.mark.parametrize("word", sorted(OWN_FILES))
def test_a_study_of_any_framework_is_had_as_its_own_file(reader: Reader, settings: Settings, word: str) -> None:
    name, gpus = resolved(word), 1 if word == "verl" else 0
    machine = factories.resources(framework=name, gpus=gpus, device="cuda" if gpus else "cpu")
    own = factories.configuration(precision="bf16", logprob_rows=4, micro_batch_size=4, gradient_accumulation_steps=2)
    spec = factories.study_spec(
        framework=name,
        resources=machine,
        baseline=own,
        workload=factories.workload(passthrough={}),
        checkout="/src/open-r1" if word == "openr1" else "",
    )
    store = open_store(settings.database)
    study = store.create_study(spec, factories.NOW)
    for number in range(2):
        record(store, study, factories.finished(number, configuration=own))
    store.close()
    answer = reader.ask(f"/api/v1/studies/1/recommendation?format={word}")
    file, kind, line = OWN_FILES[word]
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.headers["content-disposition"] == f'attachment; filename="{file}"'
    assert line in answer.text
    assert answer.text.startswith("#!/bin/sh\n") is (kind == "text/x-shellscript")
    other = reader.ask(f"/api/v1/studies/1/recommendation?format={'trl' if word != 'trl' else 'verl'}")
    assert (other.status_code, f"study 1 is of {word}, not of " in other.json()["detail"]) == (409, True)


def test_the_examples_of_the_description_are_of_its_shapes() -> None:
    shapes = {"findRecommendations": matches.Matches, "getRecommendation": Answer, "listTrials": Trials}
    for operation, shape in shapes.items():
        shape.model_validate(examples.example(operation)["application/json"]["example"])
