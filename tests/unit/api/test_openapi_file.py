"""The committed description is the API's."""

import json
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from tests.served import Reader
from tools import openapi


def test_the_committed_description_is_the_present_one() -> None:
    assert openapi.FILE.read_text() == openapi.description(), "review the difference, then `make openapi`"


def test_a_difference_is_shown_and_fails_the_check(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "openapi.json"  # type: ignore[operator]
    monkeypatch.setattr(openapi, "FILE", other)
    assert openapi.main(["--check"]) == 1
    assert not other.exists(), "a check changes nothing"
    assert openapi.main([]) == 0
    assert openapi.main(["--check"]) == 0
    other.write_text(other.read_text().replace("listTrials", "list_trials"))
    assert openapi.main(["--check"]) == 1
    assert '"operationId": "list_trials"' in capsys.readouterr().err


def test_every_operation_says_what_it_may_answer() -> None:
    document = json.loads(openapi.description())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = set(operation["responses"])
            assert operation["description"], path
            assert "401" in answers or path in ("/healthz", "/readyz"), path
            assert "default" not in answers
            assert ("202" in answers) is (method == "post"), path


def test_lists_have_examples() -> None:
    document = json.loads(openapi.description())
    for path in ("/api/v1/recommendations", "/api/v1/studies/{study_id}/trials"):
        answer = document["paths"][path]["get"]["responses"]["200"]
        assert answer["content"]["application/json"]["example"]


def test_the_description_is_valid_and_tidy(finished: Reader) -> None:
    """Client generators name their functions after operation ids and follow every reference."""
    document = finished.json("/api/v1/openapi.json")
    OpenAPI.model_validate(document)
    operations = [op for path in document["paths"].values() for op in path.values()]
    ids = [op["operationId"] for op in operations]
    assert sorted(ids) == sorted(set(ids))
    assert set(document["paths"]) == {
        "/api/v1/studies",
        "/api/v1/studies/{study_id}",
        "/api/v1/studies/{study_id}/recommendation",
        "/api/v1/studies/{study_id}/export",
        "/api/v1/studies/{study_id}/trials",
        "/api/v1/studies/{study_id}/trials/{number}",
        "/api/v1/studies/{study_id}/trials/{number}/cycles",
        "/api/v1/studies/{study_id}/trials/{number}/log",
        "/api/v1/studies/{study_id}/trials/{number}/memory",
        "/api/v1/studies/{study_id}/events",
        "/api/v1/studies/{study_id}/events/stream",
        "/api/v1/studies/{study_id}/fingerprints",
        "/api/v1/studies/{study_id}/requests",
        "/api/v1/recommendations",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    declared = {tag["name"] for tag in document["tags"]}
    assert all(set(op["tags"]) <= declared and op["tags"] for op in operations)
    references = set(_references(document))
    assert references
    parts = document["components"]["schemas"]
    assert {r.removeprefix("#/components/schemas/") for r in references} <= set(parts)
    assert not {name for name in parts if "HTTPValidation" in name}, "errors are problem documents"


def _references(value: Any) -> Any:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
