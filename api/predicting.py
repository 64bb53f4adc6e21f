"""Predictions if no study has a recommendation: the planner of ``autotune plan``, with facts as its only input."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException

from api.cache import StudyCache, settled
from autotune.errors import UsageError
from autotune.forecast.documents import plan_json
from autotune.forecast.facts import Facts, known_gpu, question_of
from autotune.forecast.gpus import KnownGpu
from autotune.forecast.with_models import plan_from_readings
from autotune.insights.matching import Match, TrainingProfile
from autotune.recommendation.reading import StudyReading
from search_spaces.configuration import ModelFacts

NOTHING_FITS = "nothing is predicted to fit"
_TAKEN = ("load", "machine", "best", "permitted", "framework_defaults", "likely_to_fit", "looked_at")

Answer = tuple[dict[str, Any], str]
"""(item without match, distance and differences, ``""``); or, without a prediction, (empty, reason in a sentence)."""


class Predictor:
    """Makes one prediction at a time: each takes seconds of a core, perhaps beside a trial that measures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def answer(
        self, studies: StudyCache, matches: Sequence[Match], profile: TrainingProfile, limit_bytes: int | None
    ) -> Answer:
        """Returns the prediction for a training job; cached until a study on the same GPUs changes.

        Raises:
            HTTPException: another prediction is being made.
            StoreError: the database cannot be read.
        """
        facts = _facts(matches, profile, limit_bytes)
        recorded = _recorded(studies, None if profile.gpu is None else known_gpu(profile.gpu))
        key = ("predicted", facts, *map(settled, recorded))
        return studies.cached(key, lambda: self._predicted(facts, recorded))

    def _predicted(self, facts: Facts, recorded: Sequence[StudyReading]) -> Answer:
        if not self._lock.acquire(blocking=False):
            raise HTTPException(503, "a prediction is being made for another reader", {"Retry-After": "5"})
        try:
            question, presumed = question_of(facts)
            plan = plan_from_readings(question, recorded)
        except UsageError as error:
            return {}, str(error)
        finally:
            self._lock.release()
        if not plan.feasible:
            return {}, NOTHING_FITS
        document = plan_json(plan)
        item = {"accuracy": document["accuracy"], "presumed": list(presumed)}
        return item | {name: document[name] for name in _TAKEN}, ""


def _facts(matches: Sequence[Match], profile: TrainingProfile, limit_bytes: int | None) -> Facts:
    return Facts(
        model=_model(matches, profile),
        gpu=profile.gpu,
        gpus=profile.gpus,
        memory=limit_bytes,
        name=profile.model,
        framework=profile.framework,
        rows_per_update=profile.rows_per_update,
        max_prompt_length=profile.max_prompt_tokens,
        max_completion_length=profile.max_completion_tokens,
    )


def _model(matches: Sequence[Match], profile: TrainingProfile) -> ModelFacts:
    """Returns the model's facts from a study of it, else from its number of parameters."""
    for match in matches:
        known = match.study.spec.resources.model
        if profile.model and known.parameters and not any(d.name == "model" for d in match.differences):
            return known
    return ModelFacts(parameters=None if profile.params_b is None else max(1, round(profile.params_b * 1e9)))


def _recorded(studies: StudyCache, gpu: KnownGpu | None) -> list[StudyReading]:
    """Returns the studies all of whose GPUs are of this kind; none for ``None``."""
    if gpu is None:
        return []
    alike = [i for i, names in studies.gpu_names().items() if names and {*map(known_gpu, names.split(", "))} == {gpu}]
    return [studies.snapshot(study_id) for study_id in alike]
