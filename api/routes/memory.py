"""The memory of a trial over its time."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.deps import AttemptQuery, StudiesDep, StudyId, TrialNumber
from api.logs import open_below
from api.responses import JSON, conditional, dumps
from api.schemas.problems import described
from api.schemas.study_examples import MEMORY_EXAMPLE
from api.schemas.trials import MemoryTimeline
from autotune.documents.memory_timeline import read, timeline_json
from autotune.documents.study import plain
from autotune.errors import NotFoundError
from autotune.recommendation.current import paths_of

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"])


@router.get("/trials/{number}/memory", **described("getMemory", MemoryTimeline, MEMORY_EXAMPLE, 404))
def get_memory(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[AttemptQuery, Query()],
) -> Response:
    """The memory of an attempt over its time: of its process tree, and where there are GPUs of the fullest one.

    Each has at most 300 points, the highest of as many stretches of time, so that no peak is lost. While the trial runs
    they are written down every ten seconds; before that, and of trials of earlier versions, there is none (404).
    """
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    paths = paths_of(studies.home, found.study, trial, query.attempt, "memory timeline")
    timeline = read(paths.memory, partial(open_below, studies.home.runs))
    if timeline is None:
        raise NotFoundError(f"trial {number} has no memory timeline yet, or none that can be read")
    document = {
        "study": plain(found.study.spec.name),
        "trial": number,
        "attempt": query.attempt or trial.attempt,
        "memory_limit_bytes": found.study.spec.memory_limit,
        **timeline_json(timeline),
    }
    return conditional(request, dumps(document), JSON)
