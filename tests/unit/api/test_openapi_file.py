"""The committed description is the API's."""

import json
import re
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from api.schemas.base import Shape
from tests.support import api_examples
from tests.support.served import Reader
from tools import openapi


def test_the_committed_description_and_its_examples_are_the_present_ones() -> None:
    assert openapi.FILE.read_text() == openapi.description(), "review the difference, then `make openapi`"
    assert api_examples.FILE.read_text() == api_examples.text(), "`make openapi` writes them"


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


def shapes(of: type[Shape] = Shape) -> dict[str, type[Shape]]:
    """Every shape by its name."""
    return {found.__name__: found for each in of.__subclasses__() for found in (each, *shapes(each).values())}


def test_every_document_has_an_example_of_its_shape() -> None:
    """What a reader copies must be what is sent."""
    document, known = json.loads(openapi.description()), shapes()
    shown = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            answer = operation["responses"].get("200") or operation["responses"]["202"]
            content = answer["content"].get("application/json")
            if content is None or path in ("/healthz", "/readyz"):
                continue
            shape = known[content["schema"]["$ref"].rpartition("/")[2]]
            shape.model_validate_json(json.dumps(content["example"]))
            shown += 1
    assert shown >= 12


UNITS = re.compile(
    r"(^|_)(seconds|bytes|hours|tokens|per_hour|per_cycle|shares?|probability|joules|watts|mhz|celsius|cores)(_|$)"
)
WITHOUT_UNIT = {
    *("baseline", "configuration", "seams", "here", "there", "before", "after", "value"),  # of knobs, as they are
    *("study", "wanted"),  # of any property
    *("distance", "gain", "low", "high", "at_least"),  # ratios, or doublings
    "level",  # a probability
    *("grad_norm", "logp_mismatch", "loss", "reward_mean"),
}


def test_what_is_measured_has_its_unit_in_its_name() -> None:
    document = json.loads(openapi.description())
    properties = [
        (name, field, value)
        for name, shape in document["components"]["schemas"].items()
        for field, value in shape.get("properties", {}).items()
    ]
    measured = {field for _, field, value in properties if "number" in _kinds(value)}
    assert {"tokens_per_hour", "wall_seconds", "gpu_hours"} <= measured
    assert {field for field in measured if not UNITS.search(field)} <= WITHOUT_UNIT


def _kinds(schema: Any) -> set[str]:
    """Of a property, the types it may have."""
    inner = [s for key in ("anyOf", "oneOf") for s in schema.get(key, ())]
    further = schema.get("additionalProperties")
    inner += [further] if isinstance(further, dict) else []
    own = {schema["type"]} if "type" in schema else set()
    return own.union(*(_kinds(s) for s in inner))


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
        "/api/v1/studies/{study_id}/annotations",
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
