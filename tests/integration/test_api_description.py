"""Whatever a program made from the API's description sends is answered as the description says, on either database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples

from api.guard.security import Access
from autotune.documents.memory_timeline import text_of
from autotune.recommendation.current import attempt_paths
from autotune.store import open_store
from tests.support import factories
from tests.support.served import Reader, Served, settings_in, whole_study
from tools.openapi import FILE

pytestmark = pytest.mark.full

TOKEN = "correct-horse-battery-staple"
EXAMPLES = 15
ENDLESS = "/api/v1/studies/{study_id}/events/stream"
"""Its answer has no end; tests/unit/api/test_events.py has it."""
DESCRIPTION = json.loads(FILE.read_text(encoding="utf-8"))
OPERATIONS = [(path, m) for path, each in sorted(DESCRIPTION["paths"].items()) for m in each if path != ENDLESS]


@dataclass(frozen=True)
class Described:
    """What makes requests of the description, and what is asked of the answers."""

    operations: Any
    checks: list[Any]


@pytest.fixture(scope="module")
def described() -> Described:
    """Imported only here: it takes longer than all tests that are not run."""
    schemathesis, general, own = (
        import_module(f"schemathesis{name}") for name in ("", ".checks", ".specs.openapi.checks")
    )
    conformance = (own.status_code_conformance, own.content_type_conformance, own.response_schema_conformance)
    return Described(schemathesis.openapi.from_dict(DESCRIPTION), [general.not_a_server_error, *conformance])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A study that has ended, with a log, behind a token; its address, and what went wrong inside."""
    settings = settings_in(tmp_path_factory.mktemp("described"))
    if request.param == "postgresql":
        settings = replace(settings, database=request.getfixturevalue("postgresql").new_database())
    study = whole_study(settings)
    log = attempt_paths(settings.home, study, factories.finished(0)).log
    log.parent.mkdir(parents=True)
    log.write_text("a line\n" * 100)
    attempt_paths(settings.home, study, factories.finished(0)).memory.write_text(text_of(factories.timeline()))
    store = open_store(settings.database)
    store.add_event(study.id, factories.event(data={"nan": float("nan"), "deep": [{}]}))
    reader = Reader(settings, Access(token=TOKEN), allow_control=True)
    made = Served(reader)
    with store.lock(study.id):
        yield made.url, reader.crashes
    made.close()
    reader.cache.close()
    store.close()


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda word: word.strip("/").replace("/", " "))
def test_no_failure_and_no_answer_that_is_not_described(
    served: Any, described: Described, path: str, method: str, mode: str
) -> None:
    operation = described.operations[path][method.upper()]
    if mode == "negative" and not list(operation.iter_parameters()) and not operation.body:
        pytest.skip("nothing about it can be wrong")
    url, crashes = served

    @examples(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=import_module("schemathesis").GenerationMode(mode)))
    def ask(case: Any) -> None:
        answer = case.call(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
        case.validate_response(answer, checks=described.checks)

    ask()
    assert crashes == []
