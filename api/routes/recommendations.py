"""Recommendations of other studies for a machine and workload that was not tuned itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.cache import StudyCache, settled
from api.deps import Parameters, PredictorDep, StudiesDep
from api.paging import after, next_link
from api.predicting import Predictor
from api.responses import JSON, conditional, dumps
from api.schemas.matches import Matches
from api.schemas.problems import described
from autotune.documents.recommendation import recommendation_json, row_json
from autotune.documents.study import fields_json, plain, study_json
from autotune.insights.matching import Match, TrainingProfile, nearest_studies
from autotune.insights.why import shares_json
from autotune.recommendation.reading import StudyReading
from autotune.statistics.knob_shares import knob_shares

router = APIRouter(prefix="/api/v1", tags=["recommendations"])

LARGEST = 2**53 - 1
NOT_PREDICTED = "nothing is predicted here: each item was measured"
PREDICTED = "predicted from facts of the model and the GPU alone: nothing of it was run"


class MatchQuery(Parameters):
    """Properties of a training job; missing ones match every study."""

    model: str | None = Field(None, min_length=1, max_length=300, description="Folder or hub id; the last part counts.")
    params_b: float | None = Field(
        None, gt=0, le=1e6, allow_inf_nan=False, description="Parameters of the model in billions.", examples=[0.5]
    )
    gpu: str | None = Field(None, min_length=1, max_length=100, description="`cpu`, or part of a GPU's name.")
    gpus: int | None = Field(None, ge=0, le=LARGEST, description="GPUs over all nodes.")
    framework: str | None = Field(None, min_length=1, max_length=50, examples=["trl"])
    max_memory_bytes: int | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="Only configurations whose measured peak (of a GPU; on a CPU, of all processes) is at most this.",
    )
    rows_per_update: int | None = Field(None, ge=1, le=LARGEST)
    max_prompt_tokens: int | None = Field(None, ge=1, le=LARGEST)
    max_completion_tokens: int | None = Field(None, ge=1, le=LARGEST)
    limit: int = Field(5, ge=1, le=50, description="Items on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the previous page.")

    def profile(self) -> TrainingProfile:
        """Returns the properties of the training job, without paging and the memory limit."""
        return TrainingProfile(**self.model_dump(exclude={"limit", "cursor", "max_memory_bytes"}))


@router.get("/recommendations", **described("findRecommendations", Matches))
def find_recommendations(
    request: Request, studies: StudiesDep, predictor: PredictorDep, query: Annotated[MatchQuery, Query()]
) -> Response:
    """Finds recommendations of the studies nearest to the query, with their differences and each changed knob's share.

    `match` is `exact` if no requested property differs, else `nearest` with the distance by property. Studies of
    another kind of device, or of a model more than twice or less than half as large, are under `far`. If no near study
    has a recommendation, the only item is `predicted` from `gpu` and `params_b` (or the `model` of a study here), which
    takes some seconds; the list has either measured or predicted items, and `reason` says which.
    """
    matches = nearest_studies(studies.studies(), query.profile(), studies.gpu_names())
    items: list[dict[str, Any]] = []
    far: list[dict[str, Any]] = []
    shown: list[Match] = []
    too_large = unanswered = 0
    following: str | None = None
    for match in after(matches, lambda match: match.study.id, query.cursor):
        found = studies.snapshot(match.study.id)
        if found.recommendation is None or not found.recommendation.rows:
            unanswered += 1
            continue
        if len(shown) == query.limit:
            following = str(shown[-1].study.id)
            break
        item = _item(studies, match, found, query.max_memory_bytes)
        if not item:
            too_large += 1
        else:
            (far if match.is_far else items).append(item)
            shown.append(match)
    reason = _reason(shown, too_large, unanswered, query.max_memory_bytes)
    if not items and query.cursor is None:
        item, how = _predicted(studies, predictor, matches, query)
        items, reason = ([item] if item else []), f"{reason}; {how}"
    elif items:
        reason = f"{reason}; {NOT_PREDICTED}"
    document = {"items": items, "far": far, "next_cursor": following, "reason": reason}
    return conditional(request, dumps(document), JSON, next_link(request, following))


def _predicted(
    studies: StudyCache, predictor: Predictor, matches: Sequence[Match], query: MatchQuery
) -> tuple[dict[str, Any], str]:
    """Returns a predicted item and a sentence on it; an empty item if nothing can be predicted."""
    rest, why = predictor.answer(studies, matches, query.profile(), query.max_memory_bytes)
    if not rest:
        return {}, f"nothing is predicted: {why}"
    return {**_head("predicted", matches[0] if matches else None), **rest}, PREDICTED


def _item(studies: StudyCache, match: Match, reading: StudyReading, limit_bytes: int | None) -> dict[str, Any]:
    rest = studies.cached(("match", settled(reading), limit_bytes), lambda: _answer(reading, limit_bytes))
    head = _head("exact" if match.distance == 0 else "nearest", match)
    return {**head, "study": study_json(match.study, studies.state(match.study)), **rest} if rest else {}


def _head(word: str, match: Match | None) -> dict[str, Any]:
    differences = () if match is None else match.differences
    return {
        "match": word,
        "distance": None if match is None else plain(match.distance),
        "differences": [{**fields_json(d, {"target": "wanted"}), "sentence": plain(d.sentence())} for d in differences],
    }


def _answer(reading: StudyReading, limit_bytes: int | None) -> dict[str, Any]:
    """Returns an item without its match; empty if no configuration stays below the limit."""
    row = reading.within(limit_bytes)
    if row is None or reading.recommendation is None:
        return {}
    shares = knob_shares(reading.trials, reading.study.spec.baseline, row.configuration)
    return {
        "source": reading.source.value,
        "row": row_json(row),
        "recommendation": recommendation_json(reading.recommendation),
        "shares": plain(shares_json(shares)),
    }


def _reason(matches: Sequence[Match], too_large: int, unanswered: int, limit_bytes: int | None) -> str:
    """Returns a sentence on why these items, or none, are listed."""
    if matches and matches[0].distance == 0:
        parts = ["measured on what was asked for"]
    elif matches and matches[0].is_far:
        parts = ["no study is near what was asked for"]
    elif matches:
        names = ", ".join(d.name for d in matches[0].differences)
        parts = [f"no study is exactly of what was asked for; the first here differs in {names}"]
    else:
        parts = ["no study has an answer to this"]
    if too_large:
        parts.append(f"{_studies(too_large)} with nothing measured within {limit_bytes} bytes left out")
    if unanswered:
        parts.append(f"{_studies(unanswered)} without an answer left out")
    return "; ".join(parts)


def _studies(number: int) -> str:
    return "1 study" if number == 1 else f"{number} studies"
