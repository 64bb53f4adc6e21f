"""What each address answers."""

import json
import re
from typing import Any

import pytest

from api.routes import pages
from api.schemas import answers, events, matches, problems, studies, trials
from api.schemas.base import Shape
from autotune.documents.recommendation import recommendation_json
from autotune.documents.study import trial_json
from autotune.domain import Study, StudyStatus
from autotune.insights.standings import best_first
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import Reader, words_of

DOCUMENTS: list[tuple[str, type[Shape]]] = [
    ("/api/v1/studies", studies.Studies),
    ("/api/v1/studies/1", studies.Status),
    ("/api/v1/studies/1/trials", trials.Trials),
    ("/api/v1/studies/1/trials/0", trials.OneTrial),
    ("/api/v1/studies/1/recommendation", answers.Answer),
    ("/api/v1/studies/1/trials/0/cycles", trials.Cycles),
    ("/api/v1/studies/1/events", events.Events),
    ("/api/v1/studies/1/fingerprints", studies.Fingerprints),
    ("/api/v1/recommendations", matches.Matches),
    ("/healthz", problems.Health),
    ("/readyz", problems.Health),
]


@pytest.mark.parametrize(("path", "shape"), DOCUMENTS)
def test_each_document_of_an_ended_study_is_what_the_description_says(
    finished: Reader, path: str, shape: type[Shape]
) -> None:
    """Else clients made from the description break; a key that is sent but not described fails too."""
    answer = finished.ask(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    shape.model_validate_json(answer.content)


@pytest.mark.parametrize(("path", "shape"), DOCUMENTS)
def test_each_document_of_a_running_study_is_what_the_description_says(
    reader: Reader, study: Study, path: str, shape: type[Shape]
) -> None:
    shape.model_validate_json(reader.ask(path).content)
    if path.endswith("/trials"):
        for number in range(5):
            trials.OneTrial.model_validate_json(reader.ask(f"{path}/{number}").content)


def test_the_recommendation_is_the_stored_one_to_the_last_digit(finished: Reader, finished_home: Settings) -> None:
    store = open_store(finished_home.database)
    stored = store.recommendation(1)
    store.close()
    assert stored is not None
    assert stored.rows[0].gain is not None
    document = finished.json("/api/v1/studies/1/recommendation")
    assert document.pop("why")["rows"]
    assert document == {"study": "first", "source": "recommendation", "recommendation": recommendation_json(stored)}


def test_a_running_study_answers_with_the_best_so_far_and_says_so(reader: Reader, study: Study) -> None:
    document = reader.json("/api/v1/studies/1/recommendation")
    assert document["source"] == "best_so_far"
    assert document["recommendation"]["rows"][0]["configuration"]["micro_batch_size"] == 4
    assert document["recommendation"]["rows"][0]["confirmed"] is False


def test_a_study_without_a_success_answers_null(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    made = store.create_study(factories.study_spec(), factories.NOW)
    record(store, made, factories.failed(0))
    store.close()
    document = reader.json("/api/v1/studies/1/recommendation")
    assert document == {"study": "first", "source": "best_so_far", "recommendation": None, "why": None}
    found = reader.json("/api/v1/recommendations")
    assert (found["items"], found["next_cursor"]) == ([], None)
    assert found["reason"].startswith("no study has an answer to this; 1 study without an answer left out; nothing is")


def test_the_status_has_budget_spending_and_what_runs(reader: Reader, study: Study) -> None:
    document = reader.json("/api/v1/studies/1")
    assert document["spent"]["wall_seconds"] == 95.0
    assert document["budget"] == {"wall_seconds": 600.0, "max_trials": 9, "gpu_hours": None, "trials_at_once": 1}
    assert [one["number"] for one in document["running"]] == [3]
    assert [(p["state"], p["trial"]) for p in document["places"]] == [("running", 3)]
    assert document["counts"]["failures"] == {"OOM": 1}


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [1, 0, 3, 4, 2]),
        ("?sort=number", [0, 1, 2, 3, 4]),
        ("?sort=newest", [4, 3, 2, 1, 0]),
        ("?state=FAIL", [2]),
        ("?state=FAIL&state=RUNNING&sort=number", [2, 3]),
        ("?kind=confirm", [4]),
        ("?kind=search&state=COMPLETE", [1]),
        ("?state=PRUNED", []),
    ],
)
def test_trials_are_sorted_and_filtered(reader: Reader, study: Study, query: str, numbers: list[int]) -> None:
    document = reader.json(f"/api/v1/studies/1/trials{query}")
    assert [t["number"] for t in document["trials"]] == numbers
    assert document["next_cursor"] is None


@pytest.mark.parametrize("sort", ["speed", "number", "newest", "speed&feasible=true", "wall_seconds&state=COMPLETE"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_give_every_trial_once_in_order(finished: Reader, sort: str, limit: int) -> None:
    whole = [t["number"] for t in finished.json(f"/api/v1/studies/1/trials?sort={sort}&limit=500")["trials"]]
    assert len(whole) > 4
    seen: list[int] = []
    path = f"/api/v1/studies/1/trials?sort={sort}&limit={limit}"
    while path:
        answer = finished.ask(path)
        page = [t["number"] for t in answer.json()["trials"]]
        assert 1 <= len(page) <= limit
        seen += page
        assert len(seen) <= len(whole), "a page is given twice"
        path = answer.links["next"]["url"] if "next" in answer.links else ""
        assert (answer.json()["next_cursor"] is None) is (path == "")
    assert seen == whole


def test_a_page_goes_on_where_it_was_although_trials_arrive(reader: Reader, study: Study, settings: Settings) -> None:
    """By position it would show a trial twice: a faster one has moved all others down."""
    first = reader.json("/api/v1/studies/1/trials?limit=1")
    store = open_store(settings.database)
    fastest = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8)
    record(store, study, factories.finished(5, cycle_seconds=2.0, configuration=fastest))
    store.close()
    second = reader.json(f"/api/v1/studies/1/trials?limit=1&cursor={first['next_cursor']}")
    assert [first["trials"][0]["number"], second["trials"][0]["number"]] == [1, 0]
    assert reader.json("/api/v1/studies/1/trials?limit=1")["trials"][0]["number"] == 5


def test_a_trial_has_its_cycles_with_phases(finished: Reader, finished_home: Settings) -> None:
    store = open_store(finished_home.database)
    stored = store.trial(1, 0)
    baseline = store.study(1).spec.baseline
    store.close()
    document = finished.json("/api/v1/studies/1/trials/0")["trial"]
    assert document.pop("usage") is None, "a simulated machine tells nothing of it"
    assert document.pop("place") == {"name": None, "node": None, "gpus": []}
    assert document == json.loads(json.dumps(trial_json(stored, baseline, cycles=True)))
    assert document["cycles"][0]["phase_seconds"]


POLLED = ["/", "/studies/1", "/api/v1/studies", "/api/v1/studies/1/trials", "/api/v1/studies/1/recommendation"]


@pytest.mark.parametrize("path", POLLED)
def test_who_polls_gets_304_until_something_changes(
    reader: Reader, study: Study, settings: Settings, path: str
) -> None:
    first = reader.ask(path)
    tag = {"If-None-Match": first.headers["etag"]}
    again = reader.ask(path, headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    store = open_store(settings.database)
    fastest = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8)
    record(store, study, factories.finished(5, cycle_seconds=2.0, configuration=fastest))
    store.close()
    changed = reader.ask(path, headers=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize("given", ["{}", '"other", {}', "*"])
def test_if_none_match_is_read_as_http_says(finished: Reader, given: str) -> None:
    tag = finished.ask("/api/v1/studies").headers["etag"]
    assert finished.ask("/api/v1/studies", headers={"If-None-Match": given.format(tag)}).status_code == 304
    assert finished.ask("/api/v1/studies", headers={"If-None-Match": '"other"'}).status_code == 200


LISTED = {
    "": "cb",
    "page=2": "a",
    "page=9": "a",
    "state=done": "a",
    "text=small&state=interrupted": "c",
    "model=Large-7B&text=LARGE": "b",
    "text=small&state=running": "",
    "state=%3Cscript%3E": "",
}


def test_studies_are_found_by_name_state_model_and_text_and_paged(
    reader: Reader, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SHOWN_STUDIES", 2)
    store = open_store(settings.database)
    for name, model in (("a", "org/small"), ("b", "/models/Large-7B"), ("c", "org/small")):
        store.create_study(factories.study_spec(name, workload=factories.workload(model=model)), factories.NOW)
    store.set_status(1, StudyStatus.DONE)
    store.close()
    for query, expected in LISTED.items():
        shown = reader.page(f"/?{query}")
        assert "".join(re.findall(r'<a href="/studies/.">(.)</a>', shown)) == expected, query
        assert ('href="/?page=2"' in shown) is (query == "")
        assert "<script>" not in shown
        if "page" not in query and "script" not in query:
            document = reader.json(f"/api/v1/studies?limit=2&{query}")
            assert "".join(study["name"] for study in document["studies"]) == expected
            assert document["total"] == (len(expected) if query else 3)
            assert f"{document['total']}{' of 3' if query else ''} studies" in words_of(shown) or not expected
    assert [s["name"] for s in reader.json("/api/v1/studies")["studies"]] == ["c", "b", "a"]
    assert [s["name"] for s in reader.json("/api/v1/studies?name=b")["studies"]] == ["b"]
    page = reader.json("/api/v1/studies?limit=2")
    rest = reader.json(f"/api/v1/studies?limit=2&cursor={page['next_cursor']}")
    assert [s["name"] for s in page["studies"] + rest["studies"]] == ["c", "b", "a"]


def test_before_the_first_study_there_is_an_empty_list_and_nothing_is_created(
    reader: Reader, settings: Settings
) -> None:
    assert reader.json("/api/v1/studies") == {"studies": [], "total": 0, "next_cursor": None}
    assert "autotune start" in reader.page("/")
    assert reader.ask("/readyz").status_code == 503
    assert reader.ask("/api/v1/studies/1").status_code == 404
    assert not settings.home.database.exists()


def test_a_fingerprint_says_its_units(reader: Reader, settings: Settings, study: Study) -> None:
    gpu = {"name": "H100", "memory": 80 * factories.GIB, "compute_capability": "9.0"}
    seen = factories.fingerprint(hardware={"cpu": "x", "memory": 16 * factories.GIB, "gpus": [gpu]})
    store = open_store(settings.database)
    store.save_fingerprint(study.id, seen, factories.NOW)
    store.close()
    (found,) = reader.json("/api/v1/studies/1/fingerprints")["fingerprints"]
    assert found["digest"] == seen.digest
    assert found["hardware"] == {
        "cpu": "x",
        "memory_bytes": 16 * factories.GIB,
        "gpus": [{"name": "H100", "memory_bytes": 80 * factories.GIB, "compute_capability": "9.0"}],
    }


def test_reading_never_writes(settings: Settings, study: Study) -> None:
    """A reader that changed anything would disturb the study it looks at."""
    reading = {
        *("study", "studies", "revisions", "trials", "events", "last_event_id", "spent", "is_locked"),
        *("recommendation", "fingerprint", "fingerprints", "notes", "close"),
    }

    class OnlyReads:
        def __init__(self) -> None:
            self._store = open_store(settings.database)

        def __getattr__(self, name: str) -> Any:
            assert name in reading, f"the API called {name}"
            return getattr(self._store, name)

    reader = Reader(settings, open_it=OnlyReads)
    revision = _revision(settings)
    for path, _ in DOCUMENTS:
        assert reader.ask(path).status_code == 200
    for path in POLLED:
        assert reader.ask(path, headers={"Accept": "text/html"}).status_code == 200
    assert reader.crashes == []
    assert _revision(settings) == revision
    reader.cache.close()


def _revision(settings: Settings) -> int:
    store = open_store(settings.database)
    try:
        return store.study(1).revision
    finally:
        store.close()


def test_the_same_functions_answer_the_command_line(finished: Reader, finished_home: Settings) -> None:
    store = open_store(finished_home.database)
    every = store.trials(1)
    store.close()
    document = finished.json("/api/v1/studies/1/trials?limit=500")
    assert [t["number"] for t in document["trials"]] == [t.number for t in best_first(every)]
    assert document["total"] == len(every)


def test_a_stopped_trial_has_a_bound_and_no_speed(reader: Reader, settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    record(store, study, factories.stopped(5))
    store.close()
    (listed,) = reader.json("/api/v1/studies/1/trials?state=PRUNED")["trials"]
    whole = reader.json("/api/v1/studies/1/trials/5")["trial"]
    for found in (listed, whole):
        assert (found["tokens_per_hour"], found["at_most_tokens_per_hour"]) == (None, 171_234.0)
        assert (found["feasible"], found["speed_cycles"], found["outcome"]["ok"]) == (False, 3, True)
        assert found["outcome"]["ceiling"] == {
            "at_most_tokens_per_hour": 171_234.0,
            "best_at_least_tokens_per_hour": 190_234.0,
            "best_trial": 0,
            "cycles": 3,
            "by_phases": False,
        }
    assert whole["protocol"]["looks_cycles"] == []
    assert reader.json("/api/v1/studies/1/trials/0")["trial"]["at_most_tokens_per_hour"] is None
