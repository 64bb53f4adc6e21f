"""Requests to a running tuner, on a server that was started with ``--allow-control`` and has a token.

No request contains code, a path, an address or a configuration: only one word, and the number of a finished trial.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from api.deps import LARGEST_ID, Parameters, StudiesDep, StudyId
from api.errors import problem
from api.responses import JSON, dumps
from api.schemas.events import Requested
from api.schemas.examples import example
from api.schemas.problems import problems
from autotune.documents.study import event_json
from autotune.domain import Event
from autotune.ports import Store
from autotune.study.control import Action

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["control"])


class Asking(Parameters):
    """A request to a tuner."""

    action: Action = Field(
        description="`pause`: no new trial; `resume`; `stop`: finish the running trial and recommend; `cancel`: end "
        "now, keeping what was measured; `retry`: run the configuration of `trial` again."
    )
    trial: int | None = Field(None, ge=0, le=LARGEST_ID, strict=True, description="Number of the trial to retry.")


async def allowed(request: Request) -> None:
    """Checks access and media type before the body is read."""
    if not request.app.state.allow_control:
        raise HTTPException(403, "this server only reads; `autotune serve --allow-control` with a token does more")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise HTTPException(415, f"send the body as {JSON}")


@router.post(
    "/requests",
    operation_id="askTuner",
    status_code=202,
    response_model=Requested,
    responses={**problems(400, 403, 404, 409, 415, 422, 503), 202: {"content": example("askTuner")}},
    dependencies=[Depends(allowed)],
)
def ask_tuner(studies: StudiesDep, study_id: StudyId, asking: Asking) -> Response:
    """Sends a request to the tuner that runs this study, which reads it within a second. 409 if no tuner runs it.

    The request is stored as an event of the study, with its time and origin.
    """
    store = studies.store(study_id)
    refused = _refused(store, study_id, asking)
    if refused is not None:
        return refused
    about = f" trial {asking.trial}" if asking.trial is not None else ""
    event = Event(
        kind=asking.action.event_kind,
        message=f"{asking.action.value}{about} was asked for through the API",
        data={"by": "api"},
        trial=asking.trial,
        at=time.time(),
    )
    return Response(dumps({"event": event_json(store.add_event(study_id, event))}), 202, media_type=JSON)


def _refused(store: Store, study_id: int, asking: Asking) -> Response | None:
    """Returns the refusal of a request; ``None`` if it is accepted."""
    if (asking.action is Action.RETRY) is (asking.trial is None):
        need: dict[str, Any] = {"field": "body.trial", "message": "goes with `retry`, and with nothing else"}
        return problem(422, f"{need['field']}: {need['message']}", errors=[need])
    if asking.trial is not None and not store.trial(study_id, asking.trial).state.is_finished:
        return problem(409, f"trial {asking.trial} has not ended; only a finished trial can be run again")
    if not store.is_locked(study_id):  # the only word for it that survives a tuner that was killed
        return problem(409, f"no tuner runs study {study_id}; `autotune start` and `autotune retry` do")
    return None
