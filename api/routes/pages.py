"""Pages for people and their files; none is loaded from another server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from api.cache import StudyCache, progress
from api.dashboard import asset_names
from api.dashboard.compare_view import compare_studies_view, numbers_of
from api.dashboard.filters import StudyFilter, TrialFilter, page_of, study_menus, trials_page
from api.dashboard.render import render
from api.dashboard.study_view import study_charts, study_view
from api.dashboard.timeline import MOST_TRIALS
from api.dashboard.trials_view import trials_csv
from api.deps import StudiesDep, StudyId
from api.errors import ONLY_READS
from api.responses import HTML, conditional
from api.routes.events import Asking, send_request
from autotune.charts.assets import STYLE
from autotune.charts.chart import Chart
from autotune.domain.places import place_of
from autotune.errors import NotFoundError
from autotune.recommendation.annotations import annotate
from autotune.recommendation.reading import last_event
from autotune.wording.text import clean

router = APIRouter(include_in_schema=False)

ASSETS = Path(__file__).parent.parent / "dashboard" / "assets"
SHOWN_STUDIES = 50
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/")
def all_studies(request: Request, studies: StudiesDep) -> Response:
    """Shows every study with its recommendation in one line."""
    every, wanted = studies.studies(), StudyFilter.of(request.query_params.multi_items())
    part = page_of([s for s in every if wanted.takes(s, studies.state)], wanted.page, SHOWN_STUDIES)
    found = [studies.snapshot(study.id) for study in part.shown]
    turned = {"before": part.turned("/", wanted, -1), "after": part.turned("/", wanted, 1)}

    def build() -> bytes:
        menus = study_menus(every, wanted)
        return render("studies.html", studies=found, part=part, menus=menus, every=len(every), **turned)

    key = ("studies", len(every), wanted, part.matching, *map(progress, found))
    return conditional(request, studies.cached(key, build), HTML)


@router.get("/compare")
def compare_two(request: Request, studies: StudiesDep) -> Response:
    """Compares the recommendations of two studies, named as ``?study=3&study=7``."""
    numbers = numbers_of(request.query_params.multi_items(), "study")
    pair = [studies.snapshot(number) for number in numbers]
    body = studies.cached(
        ("compare", *map(progress, pair)), lambda: render("compare.html", view=compare_studies_view(pair))
    )
    return conditional(request, body, HTML)


@router.get("/studies/{study_id}")
def one_study(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Shows a study, live; the address's query filters its trials."""
    wanted = TrialFilter.of(request.query_params.multi_items())
    return conditional(request, study_page(studies, study_id, wanted, request.app.state.allow_control), HTML)


def study_page(studies: StudyCache, study_id: int, selection: TrialFilter, control: bool = False) -> bytes:
    """Renders the page of a study, with buttons if readers have ``control``; cached until the study is read again.
    Raises ``NotFoundError`` or ``StoreError``."""
    found = studies.snapshot(study_id)
    lives = studies.lives(found)
    notes = studies.annotations(study_id)

    def draw() -> Sequence[Chart]:
        return study_charts(
            found, {t.number: place_of(studies.notes(found, t)).short for t in found.trials[-MOST_TRIALS:]}
        )

    def build() -> bytes:
        drawn = studies.cached(("study charts", progress(found)), draw)
        session = last_event(studies.store(study_id), found.study, "session_started")
        command = "" if session is None else clean(session.data.get("command", ""))
        view = study_view(found, lives, selection, drawn, notes, command)
        return render("study.html", study=view, control=control)

    key = ("study", study_id, found.study.revision, found.alive, tuple(lives.items()), selection)
    return studies.cached(key, build)


@router.get("/studies/{study_id}/trials.csv")
def download(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Returns the trials that pass the filter of the address, as a CSV file."""
    found, wanted = studies.snapshot(study_id), TrialFilter.of(request.query_params.multi_items())
    shown = trials_page(found, replace(wanted, page=1), len(found.trials) or 1).shown
    headers = {"Content-Disposition": f'attachment; filename="study-{study_id}.csv"'}
    return conditional(request, trials_csv(found, shown, studies.annotations(study_id)), "text/csv", headers)


@router.post("/studies/{study_id}/control")
async def control(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Sends a request to the tuner, or stores a note, and shows the page again; as ``/api/v1/.../requests`` does."""
    if not request.app.state.allow_control:
        raise HTTPException(403, ONLY_READS)
    given = {n: values[-1] for n, values in parse_qs((await request.body()).decode("utf-8", "replace")).items()}
    trial = int(given["trial"]) if given.get("trial", "").isdecimal() and len(given["trial"]) < 10 else None
    if given.get("action") == "annotate":
        about = study_id, trial, given.get("note", ""), given.get("tags", "").split(",")
        await run_sync(lambda: annotate(studies.store(study_id), *about))
    else:
        try:
            asking = Asking.model_validate({**given, "trial": trial})
        except ValueError:
            raise HTTPException(400, "there is no such action") from None
        await run_sync(send_request, studies, study_id, asking)
    back = f"/studies/{study_id}" if trial is None else f"/studies/{study_id}/trials/{trial}"
    return Response(status_code=303, headers={"Location": back})


@router.get("/docs")
def docs(request: Request) -> Response:
    """Shows the API's description as a page without scripts."""
    return conditional(request, render("docs.html", document=request.app.openapi()), HTML)


@router.get("/redoc")
@router.get("/api/v1")
@router.get("/openapi.json")
def to_docs(request: Request) -> Response:
    """Sends a reader on to the API's description, for people or for programs."""
    return RedirectResponse("/api/v1/openapi.json" if request.url.path.endswith(".json") else "/docs")


@router.get("/assets/{name}")
def asset(request: Request, name: str) -> Response:
    """Returns a file of the pages."""
    if name not in asset_names.ASSETS:
        raise NotFoundError(f"there is no asset {name}")
    return conditional(request, _read(name), _TYPES[Path(name).suffix], {"Cache-Control": "no-cache"})


@cache
def _read(name: str) -> bytes:
    return (STYLE if name == STYLE.name else ASSETS / name).read_bytes()
