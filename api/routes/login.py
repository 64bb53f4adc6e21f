"""Login: exchanges a one-time code for a cookie. Uses a form, to keep the code out of addresses."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response

from api.dashboard.render import render
from api.deps import AccessDep, CodesDep, ThrottleDep
from api.guard.codes import LIFE_S
from api.guard.security import COOKIE, host_of, retry_after
from api.responses import HTML

router = APIRouter(include_in_schema=False)

NOT_THE_CODE = "That is not the code that holds now: it was used, it is too old, or it was mistyped."
TOO_MANY = "Too many wrong tries; wait a little."
_OWN = re.compile(r"/(?!/)[!-\[\]-~]*")
"""A path of this server. Browsers read ``//`` and ``/\\`` as another server's name, and skip control characters."""


@router.get("/login")
async def form(request: Request, access: AccessDep, codes: CodesDep) -> Response:
    """Shows the form for a code if a token is needed; prints a new code where the server runs, unless one is valid."""
    if access.token is None:
        return _opened(request)
    codes.invite()
    return _page("", 200)


@router.post("/login")
async def enter(request: Request, access: AccessDep, codes: CodesDep, throttle: ThrottleDep) -> Response:
    """Sets a cookie that no script can read and no other site can send, if the code is right."""
    given, host = _code_of(await request.body()), host_of(request.scope)
    if access.token is None:
        return _opened(request)
    wait_s = throttle.wait_s(host)
    if wait_s:
        return _page(TOO_MANY, 429, retry_after(wait_s))
    if not codes.spend(given):
        throttle.strike(host)
        codes.invite()
        return _page(NOT_THE_CODE, 403)
    answer = _opened(request)
    secure = request.headers.get("origin", "").startswith("https:")
    answer.set_cookie(COOKIE, access.cookie(), httponly=True, samesite="strict", secure=secure, path="/")
    return answer


def _opened(request: Request) -> Response:
    """Opens the page that ``?next=`` names, if it is one of this server; else to the list of studies."""
    page = request.query_params.get("next", "")
    return Response(status_code=303, headers={"Location": page if _OWN.fullmatch(page) else "/"})


def _page(problem: str, status: int, headers: dict[str, str] | None = None) -> Response:
    body = render("login.html", problem=problem, minutes=round(LIFE_S / 60))
    return Response(body, status, headers=headers, media_type=HTML)


def _code_of(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
    except ValueError:
        return ""
    return fields.get("code", [""])[0]
