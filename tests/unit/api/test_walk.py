"""Every address of the application is tried, so that one added later, or mounted, cannot be forgotten."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from api import dashboard
from api.guard.access import access_for
from api.guard.security import OPEN_PATHS, Access, RequestGuard
from api.guard.throttle import BURST
from autotune.settings import Settings
from tests.support.served import TOKEN, Reader

REBINDING = (
    *("evil.example", "evil.example:7788", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1.nip.io"),
    *("127.0.0.1@evil.example", "evil.example#127.0.0.1", "localhost:notaport", "local host", "", "0.0.0.0:7788"),
    *("192.168.1.7", "[::2]", "0x7f000001", "2130706433", "localhost.", "127.0.0.1,evil.example", "\u2113ocalhost"),
)
ADDRESSES = frozenset({"0.0.0.0:7788", "192.168.1.7", "[::2]"})
"""Ours where every address is listened on; a lying name server needs a name."""
ELSEWHERE = (
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Site": "something new"},
)
"""What a page of another site, or of another port of this machine, can make a browser ask."""
NOWHERE = [
    ("GET", path) for path in ("/docs", "/redoc", "/nowhere", "/api/v1/../v1/studies", "/assets/../routes/pages.py")
]
ANYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound here
ASSETS = Path(dashboard.__file__).parent / "assets"


class Values(dict[str, str]):
    """Something for every variable of an address, those of routes added later too."""

    def __missing__(self, name: str) -> str:
        return "1"


VALUES = Values(number="0", name="page.css")


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: VALUES[found[1]], path)


ABROAD = access_for(ANYWHERE, {"AUTOTUNE_TOKEN": TOKEN}, names=["box.example"])
LOCKED = {"reads": (Access(token=TOKEN), False), "controls": (Access(token=TOKEN), True), "abroad": (ABROAD, True)}


@pytest.fixture(params=LOCKED)
def locked(finished_home: Settings, request: pytest.FixtureRequest) -> Iterator[Reader]:
    """A server that wants a token: on this machine, with control, and for other machines."""
    access, control = LOCKED[request.param]
    reader = Reader(finished_home, access, allow_control=control)
    yield reader
    reader.cache.close()


@pytest.fixture
def abroad(finished_home: Settings) -> Iterator[Reader]:
    """A server for other machines."""
    reader = Reader(finished_home, ABROAD)
    yield reader
    reader.cache.close()


def walked(reader: Reader) -> set[tuple[str, str]]:
    """(method, path) of every route, mount and file there is, with something in place of its variables."""
    guard = reader.app
    assert isinstance(guard, RequestGuard), "nothing stands in front of the guard"
    found = set(_all(guard._app, ""))
    return found | {("GET", f"/assets/{file.relative_to(ASSETS)}") for file in ASSETS.rglob("*.*")}


def _all(app: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for route in getattr(app, "routes", None) or ():
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        path = prefix + getattr(route, "path", "")
        if getattr(route, "endpoint", None) is not None:
            for method in route.methods or {"GET"}:
                yield method, filled(path)
        elif inner is not None:
            if isinstance(route, Mount):
                yield "GET", filled(path or "/")
            yield from _all(inner, path if isinstance(route, Mount) else prefix)


def test_the_walk_finds_what_is_there(locked: Reader) -> None:
    found = walked(locked)
    assert {path for _, path in found} >= {
        *("/", "/studies/1", "/login", "/healthz", "/readyz", "/metrics", "/assets/page.css", "/assets/live.js"),
        *(
            "/api/v1/openapi.json",
            "/api/v1/studies",
            "/api/v1/studies/1/trials/0/log",
            "/api/v1/studies/1/events/stream",
        ),
    }
    assert ("POST", "/api/v1/studies/1/requests") in found
    documented = {filled(p) for p in locked.json("/api/v1/openapi.json", headers=bearer())["paths"]}
    assert documented <= {path for _, path in found}


def test_the_walk_finds_a_mount_and_what_is_in_it() -> None:
    inner = Starlette(routes=[Route("/deep", lambda _: PlainTextResponse("x"))])
    outer = Starlette(routes=[Mount("/sub", app=inner)])
    assert {("GET", "/sub"), ("GET", "/sub/deep"), ("HEAD", "/sub/deep")} == set(_all(outer, ""))


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


def closed(reader: Reader) -> list[tuple[str, str]]:
    return [(method, path) for method, path in sorted(walked(reader)) if path not in OPEN_PATHS]


def test_without_the_token_everything_is_401(locked: Reader) -> None:
    wrong = ({}, {"Cookie": "autotune=wrong"})
    addresses = [*closed(locked), *NOWHERE]
    requests = [(method, path, {"headers": headers}) for method, path in addresses for headers in wrong]
    for request, answer in zip(requests, locked.ask_all(requests), strict=True):
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), request
        assert "first" not in answer.text


def test_with_a_wrong_token_everything_is_401_and_soon_429(locked: Reader) -> None:
    headers = {"Authorization": "Bearer wrong"}
    requests = [(method, path, {"headers": headers}) for method, path in closed(locked)]
    answers = locked.ask_all(requests)
    assert [a.status_code for a in answers[:BURST]] == [401] * BURST
    for request, answer in zip(requests[BURST:], answers[BURST:], strict=True):
        assert answer.status_code == 429, request
        assert int(answer.headers["retry-after"]) > 0
        assert "first" not in answer.text
    assert locked.ask("/api/v1/studies", headers=bearer()).status_code == 200, "who has the token is not shut out"
    assert locked.ask("/api/v1/studies").status_code == 401


def test_a_code_is_no_token_and_the_token_no_code(locked: Reader) -> None:
    locked.ask("/login")
    (code,) = locked.codes
    headers = {"Authorization": f"Bearer {code}", "Cookie": f"autotune={code}"}
    for method, path in closed(locked)[:BURST]:
        assert locked.ask(path, method, headers=headers).status_code == 401
        assert locked.ask(f"{path}?code={code}", method).status_code == 401
    for form in ({"token": TOKEN}, {"code": TOKEN}):
        answer = locked.ask("/login", "POST", data=form)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        assert TOKEN not in answer.text
    assert locked.ask("/login", "POST", data={"code": code}).status_code == 303, "trying it elsewhere did not use it"


def test_the_token_in_the_address_is_no_token(locked: Reader) -> None:
    """An address is kept in histories, logs and the ``Referer`` of the next."""
    names = ("token", "access_token", "key", "authorization")
    requests = [(method, f"{path}?{name}={TOKEN}", {}) for method, path in closed(locked) for name in names]
    for request, answer in zip(requests, locked.ask_all(requests), strict=True):
        assert answer.status_code == 401, request


def test_every_name_of_a_rebinding_attack_is_refused_everywhere(finished: Reader) -> None:
    """Where no token is needed the host name is all that keeps a page of another site out."""
    requests = [
        (method, path, {"headers": {"Host": host.encode("utf-8")}})
        for method, path in (*sorted(walked(finished)), *NOWHERE)
        for host in REBINDING
    ]
    for request, answer in zip(requests, finished.ask_all(requests), strict=True):
        assert answer.status_code in (400, 403), request
        assert "first" not in answer.text


def test_beyond_loopback_no_name_but_its_own_is_answered_not_even_with_the_token(abroad: Reader) -> None:
    names = [host for host in REBINDING if host not in ADDRESSES]
    requests = [
        (method, path, {"headers": {"Host": host.encode("utf-8"), **bearer()}})
        for method, path in sorted(walked(abroad))
        for host in names
    ]
    for request, answer in zip(requests, abroad.ask_all(requests), strict=True):
        assert answer.status_code in (400, 403), request
        assert "first" not in answer.text
    for host in (*ADDRESSES, "box.example:7788"):
        assert abroad.ask("/healthz", headers={"Host": host}).status_code == 200, host
        assert abroad.ask("/api/v1/studies", headers={"Host": host}).status_code == 401, host


@pytest.mark.parametrize("headers", ELSEWHERE, ids=lambda headers: " ".join(headers.values()))
def test_another_sites_page_makes_nobody_ask_anything(finished: Reader, headers: dict[str, str]) -> None:
    """It could not read the answers, but they cost time beside a measurement, and streams have a place each."""
    requests = [(method, path, {"headers": headers}) for method, path in sorted(walked(finished))]
    for request, answer in zip(requests, finished.ask_all(requests), strict=True):
        assert answer.status_code == 403, request


def test_a_link_on_another_site_is_followed_and_our_own_pages_ask(finished: Reader) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    typed = {**link, "Sec-Fetch-Site": "none"}
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    for headers in (link, typed, own, {}):
        assert finished.ask("/studies/1", headers=headers).status_code == 200, headers


def test_nothing_more_is_open_than_the_login_page_needs(locked: Reader) -> None:
    form = locked.page("/login")
    loaded = set(re.findall(r'(?:src|href)="(/assets/[^"]+)"', form))
    assert loaded | {"/healthz", "/readyz", "/login"} == OPEN_PATHS
    for path in OPEN_PATHS:
        assert locked.ask(path).status_code == 200, path
    files = {path for method, path in walked(locked) if path.startswith("/assets/")}
    assert files - OPEN_PATHS >= {"/assets/live.js", "/assets/copy.js", "/assets/marks.js"}


def test_what_is_open_shows_nothing_of_a_study(locked: Reader) -> None:
    for answer in locked.ask_all([("GET", path, {}) for path in OPEN_PATHS]):
        assert not any(word in answer.text for word in ("/models/small", "tokens_per_hour", "micro_batch_size"))


def test_no_body_is_larger_than_it_may_be_anywhere(locked: Reader) -> None:
    large = {"content": b"x" * 5000, "headers": bearer()}
    requests = [(method, path, large) for method, path in sorted(walked(locked))]
    for request, answer in zip(requests, locked.ask_all(requests), strict=True):
        assert answer.status_code == 413, request[:2]
