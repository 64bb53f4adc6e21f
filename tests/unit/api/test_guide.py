"""What docs/api.md shows works as it stands there."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from api.client import Client
from tests.support.served import Reader

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
ADDRESSES = re.findall(r"'(http://127\.0\.0\.1:7788/[^']*)'", GUIDE)
ENDLESS = "/events/stream"
NOT_READ = ("/requests", "/log", "/memory")
"""What a server that only reads refuses, and files that a study on a made-up machine has not."""


def path_of(address: str) -> str:
    parts = urlsplit(address)
    return parts.path + (f"?{parts.query}" if parts.query else "")


@pytest.mark.parametrize("address", [a for a in ADDRESSES if not a.endswith((ENDLESS, *NOT_READ))])
def test_every_address_answers(finished: Reader, address: str) -> None:
    answer = finished.ask(path_of(address))
    assert answer.status_code == 200, answer.text
    assert answer.content


def test_every_operation_is_shown(finished: Reader) -> None:
    described = set(finished.json("/api/v1/openapi.json")["paths"]) - {"/healthz"}
    shown = {re.sub(r"(?<=/)\d+(?=/|$)", "{}", urlsplit(a).path) for a in ADDRESSES}
    assert shown == {re.sub(r"\{\w+\}", "{}", path) for path in described}


def test_the_problem_that_is_shown_is_the_one_that_comes(finished: Reader) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    answer = finished.ask("/api/v1/studies/1/trials?knob=micro_batch_siz:2")
    assert answer.json() == json.loads(shown)


def test_the_client_has_what_is_called() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    called = set(re.findall(r"client\.(\w+)\(", code))
    assert called
    assert all(callable(getattr(Client, name)) for name in called)
    compile(code, "docs/api.md", "exec")
