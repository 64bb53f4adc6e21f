"""Pages for people and their files; none comes from another server."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from api.cache import StudyCache, progress
from api.dashboard import asset_names
from api.dashboard.filters import TrialFilter
from api.dashboard.render import render
from api.dashboard.study_view import history_chart, study_view
from api.deps import StudiesDep, StudyId
from api.responses import HTML, conditional
from autotune.charts.assets import STYLE
from autotune.errors import NotFoundError

router = APIRouter(include_in_schema=False)

ASSETS = Path(__file__).parent.parent / "dashboard" / "assets"
SHOWN_STUDIES = 50
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/")
def all_studies(request: Request, studies: StudiesDep) -> Response:
    """Shows every study with its answer in one line."""
    every = studies.studies()
    found = [studies.snapshot(study.id) for study in every[:SHOWN_STUDIES]]
    key = ("studies", len(every), *map(progress, found))

    def build() -> bytes:
        return render("studies.html", studies=found, hidden=len(every) - len(found))

    return conditional(request, studies.kept(key, build), HTML)


@router.get("/studies/{study_id}")
def one_study(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Shows a study, live; the address's query filters its trials."""
    wanted = TrialFilter.of(request.query_params.multi_items())
    return conditional(request, study_page(studies, study_id, wanted), HTML)


def study_page(studies: StudyCache, study_id: int, wanted: TrialFilter) -> bytes:
    """Renders the page of a study; cached until the study is read anew. Raises ``NotFoundError`` or ``StoreError``."""
    found = studies.snapshot(study_id)
    lives = studies.lives(found)
    drawn = studies.kept(("history", progress(found)), lambda: history_chart(found))
    key = ("study", study_id, found.study.revision, found.alive, tuple(lives.items()), wanted)
    return studies.kept(key, lambda: render("study.html", study=study_view(found, lives, wanted, drawn)))


@router.get("/docs")
def docs(request: Request) -> Response:
    """Shows the API's description as a page without scripts."""
    return conditional(request, render("docs.html", document=request.app.openapi()), HTML)


@router.get("/redoc")
@router.get("/api/v1")
def to_docs() -> Response:
    """Sends a reader on to the API's description for people."""
    return RedirectResponse("/docs")


@router.get("/openapi.json")
def to_openapi() -> Response:
    """Sends a reader on to the API's description for programs."""
    return RedirectResponse("/api/v1/openapi.json")


@router.get("/assets/{name}")
def asset(request: Request, name: str) -> Response:
    """Returns a file of the pages."""
    if name not in asset_names.ASSETS:
        raise NotFoundError(f"there is no asset {name}")
    return conditional(request, _read(name), _TYPES[Path(name).suffix], {"Cache-Control": "no-cache"})


@cache
def _read(name: str) -> bytes:
    return (STYLE if name == STYLE.name else ASSETS / name).read_bytes()
