"""Every error is a problem document, or a page for a browser; never a traceback."""

import re
import sqlite3
from typing import Any

import pytest

from autotune.domain import Study
from autotune.errors import StoreError
from autotune.settings import Settings
from autotune.store import open_store
from tests.support.served import Reader

PROBLEM = "application/problem+json"
CURSORS = ("x", "W10", "W251bGxd", "!!!", "eyJhIjoxfQ", "WzEsMiwzLDRd", "W05hTiwgMSwgMV0", "")


def assert_problem(answer: Any, status: int) -> Any:
    assert answer.status_code == status
    assert answer.headers["content-type"] == PROBLEM
    document = answer.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:autotune:problem:")
    assert document["title"]
    assert document["detail"]
    assert "Traceback" not in answer.text
    return document


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/api/v2/studies",
        "/api/v1/studies/",
        "/api/v1/studies/99",
        "/api/v1/studies/99/trials",
        "/api/v1/studies/99/trials/0",
        "/api/v1/studies/99/recommendation",
        "/api/v1/studies/1/trials/99",
        "/assets/nothing",
    ],
)
def test_what_is_not_there(finished: Reader, path: str) -> None:
    assert_problem(finished.ask(path), 404)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/studies/x", "path.study_id"),
        ("/api/v1/studies/0", "path.study_id"),
        ("/api/v1/studies/-1", "path.study_id"),
        ("/api/v1/studies/99999999999999999999", "path.study_id"),
        ("/api/v1/studies/1/trials/-1", "path.number"),
        ("/api/v1/studies/1/trials/1e3", "path.number"),
        ("/api/v1/studies/1/trials?limit=0", "query.limit"),
        ("/api/v1/studies/1/trials?limit=501", "query.limit"),
        ("/api/v1/studies/1/trials?limit=many", "query.limit"),
        ("/api/v1/studies/1/trials?state=BROKEN", "query.state.0"),
        ("/api/v1/studies/1/trials?kind=other", "query.kind.0"),
        ("/api/v1/studies/1/trials?sort=value", "query.sort"),
        ("/api/v1/studies/1/trials?stat=FAIL", "query.stat"),
        ("/api/v1/studies/1/trials?knob=micro_batch_siz:4", "query.knob"),
        ("/api/v1/studies/1/trials?knob=", "query.knob"),
        ("/api/v1/studies/1/trials?failure=SLOW", "query.failure.0"),
        ("/api/v1/studies/1/trials?feasible=perhaps", "query.feasible"),
        ("/api/v1/studies/1/trials?knob.micro_batch_size=4", "query.knob.micro_batch_size"),
        *((f"/api/v1/studies/1/trials?limit=1&cursor={cursor}", "query.cursor") for cursor in CURSORS),
        ("/api/v1/studies?offset=3", "query.offset"),
        ("/api/v1/recommendations?gpus=-1", "query.gpus"),
        ("/api/v1/recommendations?model=", "query.model"),
        ("/api/v1/recommendations?url=http://evil.example", "query.url"),
    ],
)
def test_what_is_not_valid_is_named(finished: Reader, path: str, field: str) -> None:
    """A misspelt filter that is ignored would answer with everything."""
    document = assert_problem(finished.ask(path), 422)
    assert [e["field"] for e in document["errors"]] == [field]
    assert field in document["detail"]
    assert not re.search("Input should|Extra inputs|unable to parse", document["detail"])


@pytest.mark.parametrize("path", ["/nowhere", "/studies/99", "/studies/abc", "/studies/0"])
def test_a_person_gets_a_page(finished: Reader, path: str) -> None:
    answer = finished.ask(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert 'href="/"' in answer.text


def test_an_unexpected_error_is_told_to_us_and_not_to_the_reader(settings: Settings, study: Study) -> None:
    def broken() -> Any:
        raise RuntimeError("secret of the house")

    reader = Reader(settings, open_it=broken)
    for path in ("/api/v1/studies", "/api/v1/studies/1/trials"):
        answer = reader.ask(path)
        assert_problem(answer, 500)
        assert "secret" not in answer.text
    page = reader.ask("/", headers={"Accept": "text/html"})
    assert page.status_code == 500
    assert "secret" not in page.text
    assert [str(e) for e in reader.crashes] == ["secret of the house"] * 3
    assert page.headers["content-security-policy"]


def test_a_database_that_cannot_be_read_is_503_and_mends_itself(settings: Settings, study: Study) -> None:
    broken = True

    def opening() -> Any:
        if broken:
            raise StoreError("the disk is gone")
        return open_store(settings.database)

    reader = Reader(settings, open_it=opening)
    for path in ("/readyz", "/api/v1/studies", "/api/v1/studies/1"):
        answer = reader.ask(path)
        assert assert_problem(answer, 503)["detail"] == "the disk is gone"
    assert reader.ask("/healthz").status_code == 200
    assert reader.crashes == []
    broken = False
    assert reader.ask("/readyz").status_code == 200
    assert reader.json("/api/v1/studies/1")["study"]["name"] == "first"
    reader.cache.close()


def test_a_database_of_another_version_is_not_ready(reader: Reader, settings: Settings, study: Study) -> None:
    assert reader.ask("/readyz").status_code == 200
    connection = sqlite3.connect(settings.database)
    connection.execute("UPDATE autotune_schema SET version = 9999")
    connection.commit()
    connection.close()
    assert "9999" in assert_problem(reader.ask("/readyz"), 503)["detail"]


def test_a_hostile_address_is_repeated_harmlessly(finished: Reader) -> None:
    answer = finished.ask("/<script>alert(1)</script>", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "\x1b" not in finished.ask("/%1b]0;title%07").text
