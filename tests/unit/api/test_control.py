"""Asking a tuner for something: by whom, where, and what never."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api.guard.access import access_for
from api.guard.security import Access
from autotune.domain import Study
from autotune.errors import UsageError
from autotune.settings import Settings
from autotune.store import open_store
from autotune.study.control import Action
from tests.support.served import TOKEN, Reader

REQUESTS = "/api/v1/studies/1/requests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def asked(settings: Settings, interrupted: Study) -> Iterator[Reader]:
    """A server that passes requests on."""
    reader = Reader(settings, Access(token=TOKEN), allow_control=True)
    yield reader
    reader.cache.close()


@pytest.fixture
def tuner(settings: Settings, interrupted: Study) -> Iterator[Any]:
    """Somebody who runs the study: that is, who holds its lock."""
    store = open_store(settings.database)
    with store.lock(interrupted.id):
        yield store
    store.close()


def ask(reader: Reader, document: Any, **headers: str) -> Any:
    return reader.ask(REQUESTS, "POST", json=document, headers={**BEARER, **headers})


@pytest.mark.parametrize("action", ["pause", "resume", "stop", "cancel"])
def test_a_request_is_an_event_everybody_can_read(asked: Reader, tuner: Any, action: str) -> None:
    answer = ask(asked, {"action": action})
    assert answer.status_code == 202
    event = tuner.events(1)[-1]
    assert (event.kind, event.trial, event.data) == (Action(action).event_kind, None, {"by": "api"})
    assert answer.json()["event"]["id"] == event.id
    assert event.at > 0


def test_a_retry_names_a_trial_that_has_ended(asked: Reader, tuner: Any) -> None:
    assert ask(asked, {"action": "retry", "trial": 2}).status_code == 202
    assert (tuner.events(1)[-1].kind, tuner.events(1)[-1].trial) == ("retry_requested", 2)
    assert ask(asked, {"action": "retry", "trial": 3}).status_code == 409, "it runs"
    assert ask(asked, {"action": "retry", "trial": 99}).status_code == 404
    for document in ({"action": "retry"}, {"action": "stop", "trial": 2}):
        answer = ask(asked, document)
        assert answer.status_code == 422
        assert "`trial` goes with `retry`" in answer.json()["errors"][0]["message"]


def test_an_extension_adds_to_limits_that_the_study_has(asked: Reader, tuner: Any) -> None:
    answer = ask(asked, {"action": "extend", "wall_seconds": 600, "trials": 3})
    assert answer.status_code == 202
    assert tuner.events(1)[-1].data == {"by": "api", "more": {"wall_s": 600.0, "max_trials": 3}}
    assert ask(asked, {"action": "extend", "gpu_hours": 1}).status_code == 409, "it has no limit of GPU-hours"
    for document in ({"action": "extend"}, {"action": "stop", "trials": 3}, {"action": "extend", "wall_seconds": -1}):
        assert ask(asked, document).status_code == 422


def test_where_nobody_runs_the_study_nobody_is_asked(asked: Reader, settings: Settings) -> None:
    answer = ask(asked, {"action": "stop"})
    assert answer.status_code == 409
    assert "no tuner runs study 1" in answer.json()["detail"]
    store = open_store(settings.database)
    assert not [e for e in store.events(1) if e.kind.endswith("_requested")]
    with store.lock(1):  # looking has taken nothing
        pass
    store.close()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"action": "delete"},
        {"action": "stop", "command": "rm -rf /"},
        {"action": "start", "config": {"reward_funcs": ["os.system"]}},
        {"action": "retry", "trial": "2"},
        {"action": "retry", "trial": -1},
        {"action": "retry", "trial": 2, "configuration": {"micro_batch_size": 4096}},
        {"action": ["stop"]},
        [],
        "stop",
    ],
)
def test_nothing_else_can_be_asked(asked: Reader, tuner: Any, document: Any) -> None:
    before = len(tuner.events(1))
    assert ask(asked, document).status_code == 422
    assert len(tuner.events(1)) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_another_site_cannot_speak_it(asked: Reader, tuner: Any, kind: str) -> None:
    """These kinds a page of another site may send without being asked first."""
    body = json.dumps({"action": "stop"}).encode()
    answer = asked.ask(REQUESTS, "POST", content=body, headers={**BEARER, "Content-Type": kind})
    assert answer.status_code == 415


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_another_site_is_refused(asked: Reader, tuner: Any, headers: dict[str, str]) -> None:
    cookie = {"Cookie": f"autotune={Access(token=TOKEN).cookie()}"}
    answer = asked.ask(REQUESTS, "POST", json={"action": "stop"}, headers={**cookie, **headers})
    assert answer.status_code == 403
    assert not [e for e in tuner.events(1) if e.kind.endswith("_requested")]


def test_without_the_token_nothing_is_asked(asked: Reader, tuner: Any) -> None:
    assert asked.ask(REQUESTS, "POST", json={"action": "stop"}).status_code == 401
    assert asked.ask(f"{REQUESTS}?token={TOKEN}", "POST", json={"action": "stop"}).status_code == 401


def test_a_server_that_was_not_told_to_only_reads(settings: Settings, study: Study) -> None:
    for access, allow in ((Access(token=TOKEN), False), (Access(), True), (Access(), False)):
        reader = Reader(settings, access, allow_control=allow)
        torn = reader.ask(REQUESTS, "POST", content=b'{"action', headers={**BEARER, "Content-Type": "application/json"})
        for answer in (ask(reader, {"action": "stop"}), torn):
            assert answer.status_code == 403
            assert "--allow-control" in answer.json()["detail"]
        reader.cache.close()


def test_control_without_a_token_is_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match="--allow-control lets readers stop a study"):
        access_for("127.0.0.1", {}, control=True)
    assert access_for("127.0.0.1", {"AUTOTUNE_TOKEN": TOKEN}, control=True).token == TOKEN
