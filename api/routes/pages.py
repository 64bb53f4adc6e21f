"""The pages for people, and what they load; all of it comes from here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from api.dashboard.render import render
from api.dashboard.studies_view import study_line
from api.dashboard.study_view import study_view
from api.deps import StudiesDep, StudyId
from api.responses import HTML, conditional
from autotune.errors import NotFoundError

router = APIRouter(include_in_schema=False)

ASSETS = Path(__file__).parent.parent / "dashboard" / "assets"
SHOWN_STUDIES = 50
_TYPES = {"page.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


@router.get("/")
def all_studies(request: Request, studies: StudiesDep) -> Response:
    """Every study with its answer in a line."""
    every = studies.studies()
    found = [studies.snapshot(study.id) for study in every[:SHOWN_STUDIES]]
    key = ("studies", len(every), *(snapshot.stamp for snapshot in found))
    lines = [study_line(snapshot) for snapshot in found]
    body = studies.body(key, lambda: render("studies.html", studies=lines, hidden=len(every) - len(found)))
    return conditional(request, body, HTML)


@router.get("/studies/{study_id}")
def one_study(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """A study, live."""
    found = studies.snapshot(study_id)
    life = studies.life(found)
    body = studies.body(("study", found.stamp, life), lambda: render("study.html", study=study_view(found, life)))
    return conditional(request, body, HTML)


@router.get("/assets/{name}")
def asset(request: Request, name: str) -> Response:
    """A file of the page."""
    if name not in _TYPES:
        raise NotFoundError(f"there is no asset {name}")
    return conditional(request, _read(name), _TYPES[name], {"Cache-Control": "no-cache"})


@cache
def _read(name: str) -> bytes:
    return (ASSETS / name).read_bytes()
