"""Who is kept out, and that nothing is left in front of the guard."""

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from anyio import BrokenResourceError
from starlette.requests import ClientDisconnect

import api.dashboard as page_files
from api.dashboard.asset_names import ASSETS
from api.guard.access import access_for, is_loopback, read_token
from api.guard.security import HEADERS, Access, SlowReaderError, nobody_reads
from autotune.charts.assets import STYLE
from autotune.errors import UsageError
from autotune.settings import Settings
from tests.support.served import TOKEN, Reader

ANYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound here


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:7788", "LOCALHOST", "[::1]:7788"])
def test_loopback_names_are_ours(finished: Reader, host: str) -> None:
    assert finished.ask("/api/v1/studies", headers={"Host": host}).status_code == 200


def test_two_host_headers_are_refused(finished: Reader) -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
    assert finished.ask("/api/v1/studies", headers=headers).status_code == 403


def test_beyond_loopback_an_address_or_a_known_name_is_ours(finished_home: Settings) -> None:
    access = access_for(ANYWHERE, {"AUTOTUNE_TOKEN": TOKEN}, names=["Box.example"])
    assert access.knows("192.168.1.7:7788")
    assert access.knows("box.example")
    assert access.knows(socket.gethostname())
    assert not access.knows("evil.example")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(finished: Reader, method: str) -> None:
    for path in ("/", "/api/v1/studies", "/api/v1/studies/1", "/api/v1/studies/1/trials/0"):
        answer = finished.ask(path, method)
        assert answer.status_code == 405, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[broken"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:7788"},
    ],
)
def test_a_form_of_another_site_is_refused(locked: Reader, headers: dict[str, str]) -> None:
    locked.ask("/login")
    answer = locked.ask("/login", "POST", headers=headers, data={"code": locked.codes[-1]})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert locked.ask("/login", "POST", data={"code": locked.codes[-1]}).status_code == 303, "it was not used up"


def test_a_large_body_is_refused_before_it_is_read(locked: Reader) -> None:
    assert locked.ask("/login", "POST", content=b"code=" + b"a" * 5000).status_code == 413
    assert locked.ask("/login", "POST", headers={"Content-Length": "-1"}).status_code == 413
    assert locked.ask("/login", "POST", headers={"Content-Length": "9" * 4000}).status_code == 413

    async def endless() -> Any:
        yield b"code="

    assert locked.ask("/login", "POST", content=endless()).status_code == 411


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer None",
        "Bearer ü",
    ],
)
def test_a_wrong_token_is_no_token(locked: Reader, value: str) -> None:
    headers = {"Authorization": value.encode("utf-8")}
    assert locked.ask("/api/v1/studies", headers=headers).status_code == 401


def test_the_token_opens_and_is_in_no_answer(locked: Reader) -> None:
    answer = locked.ask("/api/v1/studies", headers={"Authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200
    assert TOKEN not in answer.text


@pytest.mark.parametrize("cookie", ["autotune=", "autotune=x", "autotune", "other=1", "a=b; autotune=\x22\x22", "=;;="])
def test_a_wrong_cookie_is_no_token(locked: Reader, cookie: str) -> None:
    assert locked.ask("/api/v1/studies", headers={"Cookie": cookie}).status_code == 401


def test_the_cookie_of_one_token_is_not_that_of_another() -> None:
    assert Access(token=TOKEN).cookie() != Access(token=TOKEN + "2").cookie()
    assert not Access(token=None).is_token("")


@pytest.mark.parametrize("path", ["/", "/studies/1", "/api/v1/studies", "/nowhere", "/assets/live.js", "/studies/x"])
def test_every_answer_has_the_headers(finished: Reader, path: str) -> None:
    for answer in (finished.ask(path), finished.ask(path, headers={"Host": "evil.example"})):
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert answer.headers[name] == value
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_pages_need_nothing_the_policy_forbids(finished: Reader) -> None:
    """Inline scripts, styles and other machines are forbidden; a page that used one would be broken."""
    further = ("why", "trials/0", "compare?trial=0&trial=1", "recommendation")
    for path in ("/", "/studies/1", *(f"/studies/1/{name}" for name in further)):
        page = finished.page(path)
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert "http://" not in page.replace("http://127.0.0.1", "")
        assert "https://" not in page
        loaded = re.findall(r'<script(?: type="module")? src="/assets/(\w+)\.js"></script>', page)
        assert loaded == ["theme", "live", "marks", "copy"]
        assert page.count("<script") == len(loaded)


def test_every_file_of_the_pages_is_known_by_name() -> None:
    folder = Path(page_files.__file__).parent / "assets"
    assert {path.name for path in folder.iterdir()} | {STYLE.name} == ASSETS


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (SlowReaderError(), True),
        (ExceptionGroup("", [SlowReaderError(), BrokenResourceError()]), True),
        (ExceptionGroup("", [ExceptionGroup("", [ClientDisconnect()])]), True),
        (BrokenResourceError(), False),
        (ExceptionGroup("", [SlowReaderError(), ValueError()]), False),
        (OSError(), False),
    ],
)
def test_a_reader_that_is_gone_hides_no_mistake_of_ours(error: Exception, gone: bool) -> None:
    assert nobody_reads(error) is gone


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ExceptionGroup("", [BrokenResourceError()]), True),
        (ExceptionGroup("", [BrokenResourceError(), ValueError()]), False),
        (ValueError(), False),
    ],
)
def test_of_a_stream_whose_reader_left_only_its_own_tasks_may_be_seen(error: Exception, gone: bool) -> None:
    assert nobody_reads(error, stream=True) is gone


def test_the_asset_room_has_no_way_out(finished: Reader) -> None:
    for name in ("../render.py", "..%2frender.py", "%2e%2e/render.py", "page.css%00.py", "study.html"):
        answer = finished.ask(f"/assets/{name}")
        assert answer.status_code == 404, name
        assert "import" not in answer.text


def test_head_is_a_get_without_its_body(finished: Reader) -> None:
    whole, head = finished.ask("/api/v1/studies"), finished.ask("/api/v1/studies", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.5.5.5", True),
        ("::1", True),
        ("localhost", True),
        (ANYWHERE, False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_beyond_loopback_a_token_is_needed() -> None:
    with pytest.raises(UsageError, match=r"a token is needed.*AUTOTUNE_TOKEN.*--token-file"):
        access_for(ANYWHERE, {})
    assert access_for(ANYWHERE, {"AUTOTUNE_TOKEN": TOKEN}).token == TOKEN
    assert access_for("127.0.0.1", {}).token is None
    assert access_for("127.0.0.1", {"AUTOTUNE_TOKEN": TOKEN}).token == TOKEN, "who sets one means it"


@pytest.mark.parametrize("token", ["short", "a" * 21, "with space in the middle of it", "ünïcödé-token-of-length"])
def test_a_token_anybody_could_guess_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_token({"AUTOTUNE_TOKEN": token}, None)
    assert token not in str(caught.value)


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(UsageError, match="cannot be read"):
        read_token({}, file)
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match=r"read by others; `chmod 600"):
        read_token({}, file)
    file.chmod(0o600)
    assert read_token({"AUTOTUNE_TOKEN": "the environment's, which is second"}, file) == TOKEN
    file.write_text("")
    with pytest.raises(UsageError, match="is empty"):
        read_token({"AUTOTUNE_TOKEN": TOKEN}, file)


NO_HOSTS = (
    "http://box.example",
    "box.example:80",
    "*.example",
    "a b",
    "",
    "box/x",
    "[::1",
    "::1]",
    "bücher",
    "a..b",
    "@",
)


@pytest.mark.parametrize("name", NO_HOSTS)
def test_a_host_name_that_no_reader_can_send_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="can match no reader"):
        access_for("127.0.0.1", {}, names=[name])


@pytest.mark.parametrize(
    ("name", "host"), [("Box.Example", "box.example:80"), ("10.0.0.7", "10.0.0.7"), ("[fe80::1]", "[FE80::1]:7")]
)
def test_a_host_name_that_is_taken_is_answered(name: str, host: str) -> None:
    assert access_for("127.0.0.1", {}, names=[name]).knows(host)


@pytest.mark.parametrize("host", ["[::1]]", "[[::1]]", "[::1", "::1]", "[::1]x", "[::1]:", "[::1]:x", "localhost:", ""])
def test_what_is_no_host_is_not_ours(host: str) -> None:
    assert not access_for("127.0.0.1", {}).knows(host)


def test_a_pipe_as_token_file_is_read_and_never_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.guard.access.PATIENCE_S", 0.1)
    file = tmp_path / "pipe"
    os.mkfifo(file, 0o600)
    with pytest.raises(UsageError, match=r"is empty|nothing was written"):
        read_token({}, file)
    writing = os.open(file, os.O_RDWR)
    try:
        with pytest.raises(UsageError, match="nothing was written"):
            read_token({}, file)
        os.write(writing, TOKEN.encode() + b"\n")
        assert read_token({}, file) == TOKEN
    finally:
        os.close(writing)
