"""The trials of a study, the cycles of a trial, and its memory over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.cache.snapshot import Key, ListedTrial, Snapshot
from api.deps import AttemptQuery, Parameters, StudiesDep, StudyId, TrialNumber
from api.filters import TrialConditions, knob_filter
from api.logs import open_below
from api.paging import next_link, page
from api.responses import JSON, conditional, dumps, joined
from api.schemas.problems import described
from api.schemas.trials import Cycles, MemoryTimeline, OneTrial, Trials
from autotune.documents.memory_timeline import read, timeline_json
from autotune.documents.study import cycle_json, place_json, plain, trial_json
from autotune.domain import CycleKind, FailureReason, TrialKind, TrialState
from autotune.domain.places import place_of
from autotune.errors import NotFoundError
from autotune.insights.roofline import roof_of
from autotune.insights.usage_words import usage_json
from autotune.recommendation.current import paths_of

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"])


class Sort(StrEnum):
    """Order of trials."""

    SPEED = "speed"
    NUMBER = "number"
    NEWEST = "newest"
    WALL_SECONDS = "wall_seconds"
    PEAK_BYTES = "peak_bytes"


_KEYS: dict[Sort, Callable[[ListedTrial], Key]] = {
    Sort.SPEED: lambda one: one.by_speed,
    Sort.NUMBER: lambda one: one.by_number,
    Sort.NEWEST: lambda one: one.newest,
    Sort.WALL_SECONDS: lambda one: one.by_duration,
    Sort.PEAK_BYTES: lambda one: one.by_peak,
}


class TrialsQuery(Parameters):
    """Query that selects and sorts trials."""

    state: list[TrialState] = Field([], max_length=5, description="Only in these states; may be repeated.")
    kind: list[TrialKind] = Field([], max_length=8, description="Only of these kinds; may be repeated.")
    failure: list[FailureReason] = Field([], max_length=20, description="Only failed so; may be repeated.")
    feasible: bool | None = Field(None, description="Only those that are feasible, or that are not.")
    knob: list[Annotated[str, Field(max_length=200)]] = Field(
        [],
        max_length=20,
        description="Only with this value of a knob, as `name:value` or `name:low..high` (ends included, either may be "
        "left out). Repeated for one knob: any of them; for several: all.",
        examples=[["micro_batch_size:2..8", "precision:bf16"]],
    )
    sort: Sort = Field(
        Sort.SPEED,
        description="Best first, in the order they ran, the newest first, the shortest, or the least memory first.",
    )
    limit: int = Field(100, ge=1, le=500, description="Trials on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the page before.")

    def chosen(self) -> TrialConditions:
        """Returns the conditions of the query. Raises ``RequestValidationError``."""
        knobs = [knob_filter(text) for text in self.knob]
        return TrialConditions(tuple(self.state), tuple(self.kind), tuple(self.failure), self.feasible, tuple(knobs))


class CyclesQuery(Parameters):
    """Query that selects cycles of a trial."""

    kind: list[CycleKind] = Field([], max_length=8, description="Only of these kinds; may be repeated.")
    rank: int | None = Field(None, ge=0, le=100_000, description="Only as this rank saw them.")
    limit: int = Field(200, ge=1, le=500, description="Cycles on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the page before.")


@router.get("/trials", **described("listTrials", Trials, 404))
def list_trials(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[TrialsQuery, Query()]
) -> Response:
    """Lists trials, best first by default; `If-None-Match` with the ETag gives 304 while nothing changes.

    A cursor continues after the last trial of the previous page, so nothing is shown twice as trials arrive.
    """
    chosen, key = query.chosen(), _KEYS[query.sort]
    found = studies.snapshot(study_id)
    plain_order = chosen == TrialConditions()
    name = query.sort.value if plain_order else f"{query.sort.value} {chosen}"
    some = found.ordered(name, key, None if plain_order else chosen.admits)
    shown, following = page(some, key, query.limit, query.cursor, query.sort.value)
    drawer = ("trials", study_id, found.version, request.url.query)
    body = studies.kept(drawer, lambda: _page(found, shown, following))
    return conditional(request, body, JSON, next_link(request, following))


@router.get("/trials/{number}", **described("getTrial", OneTrial, 404))
def get_trial(request: Request, studies: StudiesDep, study_id: StudyId, number: TrialNumber) -> Response:
    """Returns a trial with its protocol and every cycle, phases and memory included."""
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    document = trial_json(trial, found.study.spec.baseline, cycles=True)
    document["place"] = place_json(place_of(studies.notes(found, trial)))
    document["usage"] = usage_json(trial, roof_of(found.study, found.fingerprint))
    return conditional(request, dumps({"study": plain(found.study.spec.name), "trial": document}), JSON)


@router.get("/trials/{number}/cycles", **described("listCycles", Cycles, 404))
def list_cycles(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[CyclesQuery, Query()],
) -> Response:
    """Lists the cycles of a trial's last attempt, in the order they ran, with phases, memory and lengths."""
    found = studies.snapshot(study_id)
    wanted = [
        cycle
        for cycle in found.trial(number).cycles
        if (not query.kind or cycle.cycle_kind in query.kind) and query.rank in (None, cycle.rank)
    ]
    wanted.sort(key=lambda cycle: (cycle.index, cycle.rank))
    shown, following = page(wanted, lambda c: (c.index, c.rank), query.limit, query.cursor, "cycles")
    document = {
        "study": plain(found.study.spec.name),
        "trial": number,
        "cycles": [cycle_json(cycle) for cycle in shown],
        "next_cursor": following,
    }
    return conditional(request, dumps(document), JSON, next_link(request, following))


@router.get("/trials/{number}/memory", **described("getMemory", MemoryTimeline, 404))
def get_memory(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[AttemptQuery, Query()],
) -> Response:
    """Returns the memory of an attempt over time: of its process tree, and with GPUs of the fullest one.

    Each series has at most 300 points, each the highest of its interval, so no peak is lost. While the trial runs the
    points are written every ten seconds; before the first write the answer is 404.
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


def _page(found: Snapshot, shown: Sequence[ListedTrial], following: str | None) -> bytes:
    trials = joined(one.document for one in shown)
    return b'{"study":%b,"trials":%b,"next_cursor":%b}' % (
        dumps(plain(found.study.spec.name)),
        trials,
        dumps(following),
    )
