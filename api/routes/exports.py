"""Files that train with a configuration of a study: those of ``autotune export``, without the prompts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.cache import settled
from api.dashboard.copies import files_of
from api.deps import LARGEST_ID, Parameters, StudiesDep, StudyId
from api.errors import problem
from api.responses import JSON, conditional, dumps
from api.schemas.exports import Export
from api.schemas.problems import described
from autotune.documents.recommendation import row_json
from autotune.documents.study import plain
from autotune.recommendation.export import ExportChoice, Exported, native_sentence, seam_sentence
from autotune.recommendation.reading import StudyReading

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["recommendations"])

PROMPTS = "prompts/train.jsonl"


class ExportQuery(Parameters):
    """Query that selects a configuration to export."""

    row: int = Field(1, ge=1, le=2, description="1 learns as the baseline does, 2 with what you permitted.")
    trial: int | None = Field(None, ge=0, le=LARGEST_ID, description="The configuration of this trial instead.")
    native_only: bool = Field(False, description="The best that the framework's own settings reproduce.")


@router.get("/export", **described("exportFiles", Export, 404, 409))
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
    return conditional(request, dumps(_document(found, made)), JSON)


def _document(reading: StudyReading, exported: Exported) -> dict[str, Any]:
    export = exported.export
    files = files_of(reading.study, exported).items()
    seam = seam_sentence(exported)
    return {
        "study": plain(reading.study.spec.name),
        "row": row_json(exported.row),
        "files": [{"name": n, "text": plain(text), "executable": n.endswith(".sh")} for n, text in sorted(files)],
        "command": {
            "argv": plain(export.command.argv),
            "folder": plain(export.command.folder),
            "environment": plain(dict(export.command.environment)),
        },
        "seams": plain(dict(export.seams)),
        "launcher": plain(seam) or None,
        "native": None if exported.native is None else row_json(exported.native),
        "native_sentence": plain(native_sentence(exported.native)) if seam else None,
        "diff": plain(export.diff) or None,
        "prompts": PROMPTS if export.prompts else None,
        "server": export.server,
    }
