"""A browser is let in by a code that works once; guessing one is slow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.guard import codes as codes_module
from api.guard.codes import ALPHABET, LENGTH, LIFE_S, MOST_TRIES, Codes
from api.guard.throttle import BURST, EVERY_S, MOST_ADDRESSES, Throttle, network_of
from tests.support.served import TOKEN, Reader

PAGE = {"Accept": "text/html"}
OWN = {"Origin": "http://127.0.0.1:7788"}


class Clock:
    """Moved by hand."""

    def __init__(self, now: float = 12345.678) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def enter(reader: Reader, code: str, at: str = "/login") -> Any:
    return reader.ask(at, "POST", data={"code": code}, headers=OWN)


def test_a_code_becomes_a_cookie_that_opens_the_page(locked: Reader) -> None:
    away = locked.ask("/studies/1?knob.precision=bf16&sort=newest", headers=PAGE)
    place = "/login?next=%2Fstudies%2F1%3Fknob.precision%3Dbf16%26sort%3Dnewest"
    assert (away.status_code, away.headers["location"]) == (303, place)
    form = locked.ask(place, headers=PAGE)
    (code,) = locked.codes
    assert 'name="code"' in form.text
    assert code not in form.text
    assert 'name="token"' not in form.text
    assert 'method="post">' in form.text, "it is sent to its own address, which names the page"
    entered = enter(locked, code, place)
    assert (entered.status_code, entered.headers["location"]) == (303, "/studies/1?knob.precision=bf16&sort=newest")
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    shown = locked.ask("/studies/1", headers={**PAGE, "Cookie": cookie.split(";")[0]})
    assert shown.status_code == 200
    assert "first" in shown.text


ELSEWHERE = r"""//evil https://evil /\evil \\evil %2F%2Fevil %2F%5Cevil %5C%5Cevil /%09/evil /%0a/evil
%09//evil %20//evil https:%2F%2Fevil javascript:alert(1) evil studies/1 /%0d%0aX:%201 /é"""


@pytest.mark.parametrize("page", ["", *ELSEWHERE.split()])
def test_no_address_of_another_server_is_opened(locked: Reader, page: str) -> None:
    locked.ask("/login")
    assert enter(locked, locked.codes[0], f"/login?next={page}").headers["location"] == "/"


def test_behind_a_proxy_with_tls_the_cookie_travels_by_tls_alone(locked: Reader) -> None:
    locked.ask("/login")
    answer = locked.ask("/login", "POST", data={"code": locked.codes[0]}, headers={"Origin": "https://127.0.0.1:7788"})
    assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_it_works_once_and_the_login_page_tells_the_next(locked: Reader) -> None:
    locked.ask("/login")
    locked.ask("/login")
    assert len(locked.codes) == 1, "a code that holds is not replaced by whoever opens the page"
    code = locked.codes[0]
    assert enter(locked, code).status_code == 303
    again = enter(locked, code)
    assert (again.status_code, "set-cookie" in again.headers) == (403, False)
    assert len(set(locked.codes)) == 2
    assert enter(locked, locked.codes[1]).status_code == 303


@pytest.mark.parametrize(
    "body", [b"", b"code=", b"code=%ff%fe", b"code=" + b"1" * 4000, b"&" * 99, b"code[]=1", b"\xff"]
)
def test_what_is_no_code(locked: Reader, body: bytes) -> None:
    locked.ask("/login")
    answer = locked.ask("/login", "POST", content=body)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert locked.crashes == []


def test_guessing_is_refused_with_a_time_to_wait(locked: Reader) -> None:
    answers = [enter(locked, f"wrong-{n}") for n in range(BURST + 3)]
    assert [a.status_code for a in answers] == [403] * BURST + [429] * 3
    assert all(0 < int(a.headers["retry-after"]) <= EVERY_S for a in answers[BURST:])
    locked.ask("/login")
    right = enter(locked, locked.codes[-1])
    assert (right.status_code, "set-cookie" in right.headers) == (429, False), "who must wait is not listened to"
    assert locked.ask("/api/v1/studies", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_where_no_token_is_needed_there_is_nothing_to_log_in_to(finished: Reader) -> None:
    for method in ("GET", "POST"):
        answer = finished.ask("/login", method)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "set-cookie" not in answer.headers
    assert finished.codes == []


def test_a_code_ends_with_its_time_or_its_tries() -> None:
    clock, invited = Clock(), []
    codes = Codes(invited.append, clock)
    assert not codes.spend("")
    codes.invite()
    clock.now += LIFE_S - 1
    codes.invite()
    assert len(invited) == 1
    clock.now += 2
    assert not codes.spend(invited[0]), "it is too old"
    codes.invite()
    assert len(invited) == 2
    assert [codes.spend("wrong") for _ in range(MOST_TRIES)] == [False] * MOST_TRIES
    assert not codes.spend(invited[1]), "it was tried too often"
    codes.invite()
    assert codes.spend(invited[2])
    assert not codes.spend(invited[2])


@given(st.text(max_size=80))
def test_only_the_code_is_the_code(given: str) -> None:
    invited: list[str] = []
    codes = Codes(invited.append)
    codes.invite()
    assert codes.spend(given) is (given.upper().replace("-", "") == invited[0].replace("-", ""))


def test_people_may_write_it_as_they_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module.secrets, "choice", lambda _: "0")
    for written in ("00000-00000", "0000000000", " ooooo-OOOOO ", "o0o0o o0o0o"):
        invited: list[str] = []
        codes = Codes(invited.append)
        codes.invite()
        assert invited == ["00000-00000"]
        assert codes.spend(written), written


def test_codes_are_not_alike() -> None:
    invited: list[str] = []
    for _ in range(200):
        Codes(invited.append).invite()
    plain = [code.replace("-", "") for code in invited]
    assert len(set(plain)) == 200
    assert {len(code) for code in plain} == {LENGTH}
    assert set("".join(plain)) == set(ALPHABET)


def test_the_comparison_takes_as_long_for_a_code_as_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both go through the comparison that looks at every character."""
    seen: list[tuple[bytes, bytes]] = []
    real = codes_module.hmac.compare_digest
    monkeypatch.setattr(codes_module.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or real(a, b))
    codes = Codes()
    codes.spend("guess")
    codes.invite()
    codes.spend("guess")
    assert [len(b) for _, b in seen] == [LENGTH, LENGTH]


def test_an_address_has_some_tries_and_then_one_now_and_then() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert [throttle.strike("10.0.0.1") for _ in range(BURST)] == [0.0] * BURST
    assert throttle.strike("10.0.0.1") == pytest.approx(EVERY_S)
    assert throttle.wait_s("10.0.0.1") == pytest.approx(EVERY_S), "trying while waiting costs no more"
    assert throttle.wait_s("10.0.0.2") == 0.0
    clock.now += EVERY_S
    assert throttle.strike("10.0.0.1") == 0.0
    assert throttle.strike("10.0.0.1") > 0
    clock.now += BURST * EVERY_S
    assert [throttle.strike("10.0.0.1") for _ in range(BURST)] == [0.0] * BURST


def test_addresses_that_are_forgotten_are_the_longest_unseen() -> None:
    throttle = Throttle(Clock())
    for _ in range(BURST):
        throttle.strike("first")
    for n in range(MOST_ADDRESSES - 1):
        throttle.strike(f"10.0.{n // 256}.{n % 256}")
    assert throttle.wait_s("first") > 0
    throttle.strike("one more")
    assert throttle.wait_s("first") == 0
    assert len(throttle._due) == MOST_ADDRESSES


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.7", "192.168.1.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_what_one_machine_may_have_is_one_address(host: str, network: str) -> None:
    assert network_of(host) == network
