"""Other pages of a study: reasons, each trial, a comparison of trials, and the recommendation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from api.cache import StudyCache, progress, settled
from api.dashboard.answer_view import answer_page
from api.dashboard.compare_view import compare_view, numbers_of
from api.dashboard.copies import archive, archive_name
from api.dashboard.render import render
from api.dashboard.trial_view import trial_view
from api.dashboard.why_view import WhyQuery, why_view
from api.deps import AccessDep, StudiesDep, StudyId, TrialNumber
from api.guard.security import Access
from api.logs import logs_of, open_below
from api.responses import HTML, conditional
from autotune.documents.memory_timeline import read
from autotune.errors import NotFoundError
from autotune.forecast.explain import explain
from autotune.forecast.untried_pairs import predict_pairs, predict_peaks
from autotune.recommendation.export import ExportChoice, Exported
from trainer.child.contract import RunPaths

router = APIRouter(prefix="/studies/{study_id}", include_in_schema=False)

Row = Annotated[int, Path(ge=1, le=2)]


@router.get("/why")
def why(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Shows where time and memory go, which configurations fit, and the contribution of each knob."""
    asked = WhyQuery.of(request.query_params.multi_items())
    return conditional(request, why_page(studies, study_id, asked), HTML)


def why_page(studies: StudyCache, study_id: int, query: WhyQuery) -> bytes:
    """Renders the why page; cached until a trial changes. Raises ``NotFoundError`` or ``StoreError``."""
    found = studies.snapshot(study_id)

    def lasting(of: Callable[..., Any]) -> Callable[..., Any]:
        """Keeps results of a function until another trial ends, not only until the next cycle."""
        return lambda *given: studies.cached((of.__name__, settled(found), given[2:]), lambda: of(*given))

    def build() -> bytes:
        pairs, peaks, reasons = lasting(predict_pairs), lasting(predict_peaks), lasting(explain)
        view = why_view(found, query, predict_pairs=pairs, predict_peaks=peaks, reasons=reasons)
        return render("why.html", why=view)

    return studies.cached(("why", progress(found), query), build)


@router.get("/trials/{number}")
def one_trial(
    request: Request, studies: StudiesDep, access: AccessDep, study_id: StudyId, number: TrialNumber
) -> Response:
    """Shows a trial with its live log."""
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    folder = studies.folder(found, trial)
    life = studies.lives(found).get(number)
    logs = logs_of(folder, studies.home.runs) if trial.attempt else ()
    timeline = read(RunPaths(folder).memory, partial(open_below, studies.home.runs)) if trial.attempt else None
    export = studies.cached(
        ("export", progress(found), number),
        lambda: shown_export(studies.exported(found, ExportChoice(trial=number)), access),
    )
    key = ("trial", study_id, found.study.revision, number, life, logs, timeline)
    body = studies.cached(
        key,
        lambda: render(
            "trial.html",
            found=found,
            trial=trial,
            note=studies.annotations(study_id).get(number),
            control=request.app.state.allow_control,
            view=trial_view(found, trial, life, logs, studies.notes(found, trial), export, folder, timeline),
        ),
    )
    return conditional(request, body, HTML)


@router.get("/compare")
def compare(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Compares two to six trials, named as ``?trial=3&trial=7``."""
    found = studies.snapshot(study_id)
    numbers = numbers_of(request.query_params.multi_items())
    key = ("compare", progress(found), numbers)
    body = studies.cached(key, lambda: render("compare.html", view=compare_view(found, numbers)))
    return conditional(request, body, HTML)


@router.get("/recommendation")
def recommendation(request: Request, studies: StudiesDep, access: AccessDep, study_id: StudyId) -> Response:
    """Shows the recommendation with its evidence; with ``?updates=2000&price=2.5`` the cost of a whole run."""
    found, query = studies.snapshot(study_id), tuple(request.query_params.multi_items())[:4]

    def build() -> bytes:
        rows = () if found.recommendation is None else found.recommendation.rows
        choices = [ExportChoice(row=place + 1) for place in range(len(rows))]
        exports = [shown_export(studies.exported(found, choice), access) for choice in choices]
        return render("recommendation.html", answer=answer_page(found, exports, query))

    return conditional(request, studies.cached(("recommendation", progress(found), query), build), HTML)


@router.get("/export/{row}.zip")
def export(request: Request, studies: StudiesDep, access: AccessDep, study_id: StudyId, row: Row) -> Response:
    """Returns the files that train with a row of the recommendation; with prompts only if the page needs no token."""
    return _archive(request, studies, access, study_id, ExportChoice(row=row))


@router.get("/trials/{number}/export.zip")
def export_trial(
    request: Request, studies: StudiesDep, access: AccessDep, study_id: StudyId, number: TrialNumber
) -> Response:
    """Returns the files that train with a trial's configuration; prompts as for ``export``."""
    return _archive(request, studies, access, study_id, ExportChoice(trial=number))


def _archive(request: Request, studies: StudyCache, access: Access, study_id: int, choice: ExportChoice) -> Response:
    found = studies.snapshot(study_id)
    made = shown_export(studies.exported(found, choice), access)
    if isinstance(made, str):
        raise NotFoundError(made)
    name = archive_name(found.study, row=choice.row, trial=choice.trial)
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return conditional(request, archive(found.study, made, name), "application/zip", headers)


def shown_export(export: Exported | str, access: Access) -> Exported | str:
    """Removes the prompts, which are the user's data, unless they are readable and the page needs no token."""
    readable = not isinstance(export, str) and export.prompts is not None and export.prompts.is_file()
    if isinstance(export, str) or (readable and access.token is None):
        return export
    return replace(export, prompts=None)
