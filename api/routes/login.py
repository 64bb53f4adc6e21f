"""The token for a browser, as a cookie: a form, so that the token is in no address and no history."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response

from api.dashboard.render import render
from api.deps import AccessDep
from api.responses import HTML
from api.security import COOKIE

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def form(access: AccessDep) -> Response:
    """Asks for the token, where one is needed."""
    if access.token is None:
        return Response(status_code=303, headers={"Location": "/"})
    return Response(render("login.html", wrong=False), media_type=HTML)


@router.post("/login")
async def enter(request: Request, access: AccessDep) -> Response:
    """The right token -> a cookie no script can read and no other site can send."""
    if not access.is_token(_given(await request.body())):
        return Response(render("login.html", wrong=True), status_code=403, media_type=HTML)
    answer = Response(status_code=303, headers={"Location": "/"})
    secure = request.headers.get("origin", "").startswith("https:")
    answer.set_cookie(COOKIE, access.cookie(), httponly=True, samesite="strict", secure=secure, path="/")
    return answer


def _given(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
    except ValueError:
        return ""
    return fields.get("token", [""])[0].strip()
