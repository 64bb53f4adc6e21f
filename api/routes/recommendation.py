"""The recommendation of a study: as JSON, as the framework's own file, or as all files of ``autotune export``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.cache import StudyCache, settled
from api.dashboard.copies import files_of
from api.deps import LARGEST_ID, Parameters, StudiesDep, StudyId
from api.errors import problem
from api.responses import JSON, conditional, dumps
from api.schemas.answers import Answer, Export
from api.schemas.examples import example
from api.schemas.problems import described, problems
from autotune.documents.recommendation import row_json
from autotune.documents.study import fields_json, plain
from autotune.errors import UsageError
from autotune.forecast.explain import explain
from autotune.frameworks import framework_named
from autotune.insights.why import why_json
from autotune.recommendation.current import answer_document
from autotune.recommendation.export import ExportChoice, Exported, build, native_sentence, seam_sentence
from autotune.recommendation.reading import StudyReading
from autotune.wording.text import clean
from search_spaces.frameworks import SHORT

router = APIRouter(prefix="/api/v1", tags=["recommendations"])

YAML, SHELL = "application/yaml", "text/x-shellscript"


class Format(StrEnum):
    """Format of the recommendation: the API's JSON, or a framework's file."""

    JSON = "json"
    TRL = "trl"
    OPENR1 = "openr1"
    SWIFT = "swift"
    VERL = "verl"


class RecommendationQuery(Parameters):
    """Query that selects the format and the row."""

    format: Format = Field(
        Format.JSON,
        description="A framework's name gives its configuration file, or the script that trains.",
    )
    row: int = Field(
        1, ge=1, le=2, description="Row of a file: 1 has the baseline's numerics, 2 changes numerics or the update."
    )
    native_only: bool = Field(False, description="Return a file that needs no launcher.")


@router.get(
    "/studies/{study_id}/recommendation",
    operation_id="getRecommendation",
    response_model=Answer,
    responses={
        **problems(404, 409, 422, 503),
        200: {
            "content": {
                YAML: {"schema": {"type": "object"}},
                SHELL: {"schema": {"type": "string"}},
                **example("getRecommendation"),
            }
        },
    },
)
def get_recommendation(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[RecommendationQuery, Query()]
) -> Response:
    """Returns the recommendation or the best so far, with reasons, as `autotune best --json`; or a file to train from.

    A file whose first lines name a launcher needs the other files of `autotune export`. 409: there is nothing to
    export, or the study uses another framework.
    """
    found = studies.snapshot(study_id)
    if query.format is Format.JSON:
        body = studies.cached(("recommendation", settled(found)), lambda: _document(found))
        return conditional(request, body, JSON)
    own = SHORT.get(found.study.spec.framework, found.study.spec.framework)
    if query.format.value != own:
        return problem(409, f"study {study_id} is of {clean(own)}, not of {query.format.value}")
    try:
        body = studies.cached(("file", settled(found), request.url.query), lambda: _file(studies, found, query))
    except UsageError as error:
        return problem(409, str(error))
    names = framework_named(own).names
    file = names.run if body.startswith(b"#!") else names.config
    kind = YAML if file.endswith((".yaml", ".yml")) else SHELL
    return conditional(request, body, kind, {"Content-Disposition": f'attachment; filename="{file}"'})


def _document(reading: StudyReading) -> bytes:
    why = explain(reading)
    return dumps({**answer_document(reading), "why": why_json(why)})


def _file(studies: StudyCache, reading: StudyReading, query: RecommendationQuery) -> bytes:
    choice = ExportChoice(row=query.row, native_only=query.native_only)
    made = build(reading, choice, studies.store(reading.study.id))
    files, main = made.export.files, made.main
    beside = sorted(name for name in files if name not in {main, *made.framework.names.launching})
    needs = [f"# Needs {name} beside it, which `autotune export` writes." for name in beside]
    return _headed(files[main], needs).encode("utf-8", "replace")


def _headed(text: str, lines: Sequence[str]) -> str:
    """Inserts ``lines`` at the start of ``text``, after the line that names a script's interpreter."""
    first, _, rest = text.partition("\n")
    return "\n".join([first, *lines, rest] if first.startswith("#!") else [*lines, text])


PROMPTS = "prompts/train.jsonl"


class ExportQuery(Parameters):
    """Query that selects a configuration to export."""

    row: int = Field(1, ge=1, le=2, description="1 has the baseline's numerics, 2 changes numerics or the update.")
    trial: int | None = Field(None, ge=0, le=LARGEST_ID, description="Export the configuration of this trial instead.")
    native_only: bool = Field(False, description="Export the best that the framework's own settings reproduce.")


@router.get("/studies/{study_id}/export", **described("exportFiles", Export, 404, 409))
def export_files(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[ExportQuery, Query()]
) -> Response:
    """Returns the files of a configuration and the command that trains with them, as `autotune export` writes them.

    The prompts are not sent: they are the user's data, and stay where the study ran. 409: there is nothing to export.
    """
    found = studies.snapshot(study_id)
    if query.trial is not None and query.native_only:
        field = {"field": "query.native_only", "message": "cannot choose another configuration than that of `trial`"}
        return problem(422, f"{field['field']}: {field['message']}", errors=[field])
    choice = ExportChoice(row=query.row, trial=query.trial, native_only=query.native_only)
    made = studies.cached(("files", settled(found), choice), lambda: studies.exported(found, choice))
    if isinstance(made, str):
        return problem(409, made)
    return conditional(request, dumps(_export_document(found, made)), JSON)


def _export_document(reading: StudyReading, exported: Exported) -> dict[str, Any]:
    export = exported.export
    files = files_of(reading.study, exported).items()
    seam = seam_sentence(exported)
    return {
        "study": plain(reading.study.spec.name),
        "row": row_json(exported.row),
        "files": [{"name": n, "text": plain(text), "executable": n.endswith(".sh")} for n, text in sorted(files)],
        "command": fields_json(export.command),
        "seams": plain(dict(export.seams)),
        "launcher": plain(seam) or None,
        "native": None if exported.native is None else row_json(exported.native),
        "native_sentence": plain(native_sentence(exported.native)) if seam else None,
        "diff": plain(export.diff) or None,
        "prompts": PROMPTS if export.prompts else None,
        "server": export.server,
    }
