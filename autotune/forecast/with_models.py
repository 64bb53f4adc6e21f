"""Plans with the real models: the wiring of ``autotune plan``, which runs nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.forecast import planner
from autotune.forecast.accuracy import accuracy
from autotune.forecast.answer import Needs, Plan, Predicted
from autotune.forecast.facts import known_gpu
from autotune.forecast.forecasting import Forecasts
from autotune.forecast.gpus import GPUS, KnownGpu
from autotune.forecast.question import PlanRequest, Question
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import MemoryModel
from autotune.proposals.times import PhaseTimes
from autotune.settings import Settings
from autotune.statistics.distributions import NORMAL95

if TYPE_CHECKING:
    from autotune.recommendation.reading import StudyReading

GUESSED_SPREAD = 0.3
"""Standard deviation of the logarithm of tokens/hour that guessed layers add; the phase-time model presumes the same
for unknown layers."""


def planned(question: Question, settings: Settings) -> Plan:
    """Returns the plan, with the models' accuracy on this home folder's studies on the same GPU model. Raises
    ``UsageError`` as ``plan_from_readings`` does."""
    return plan_from_readings(question, recorded_on(question.gpu, settings))


def plan_from_readings(question: Question, recorded: Iterable[StudyReading]) -> Plan:
    """Returns the plan, with its accuracy on ``recorded``; widens speed intervals if the model's layers are guessed.

    Raises:
        UsageError: no configuration is legal, or these GPUs cannot divide the rows.
    """

    def unfitted(task: Task) -> tuple[PhaseTimes, MemoryModel]:
        return PhaseTimes(question.gpu.figures).fitted(task, ()), MemoryModel.before(task)

    found = planner.plan(question, forecasts_for, accuracy(recorded, unfitted))
    if not question.load.architecture.guessed:
        return found
    return replace(
        found,
        baseline=_less_sure(found.baseline),
        best=tuple(_less_sure(one) for one in found.best),
        permitted=None if found.permitted is None else _less_sure(found.permitted),
    )


def _less_sure(found: Predicted) -> Predicted:
    wide = math.exp(math.hypot(math.log(found.high / found.tokens_per_hour), NORMAL95 * GUESSED_SPREAD))
    return replace(found, low=found.tokens_per_hour / wide, high=found.tokens_per_hour * wide)


def needed(request: PlanRequest) -> Needs:
    """Returns the smallest machines, over all GPUs with known figures."""
    return planner.needs(request, GPUS.values(), forecasts_for)


def recorded_on(gpu: KnownGpu, settings: Settings) -> tuple[StudyReading, ...]:
    """Reads this GPU's studies from the home folder's own database; creates no database, connects to no server."""
    if not settings.own_database or not settings.home.database.is_file():
        return ()
    from autotune.recommendation.reading import read_study  # noqa: PLC0415 (a plan seldom has a database to read)
    from autotune.store import open_store  # noqa: PLC0415

    with closing(open_store(settings.database, create=False)) as store:
        found = []
        for study in store.studies():
            seen = store.fingerprint(study.id)
            gpus = [] if seen is None else seen.hardware.get("gpus") or []
            kinds = {known_gpu(str(one.get("name", ""))) for one in gpus if isinstance(one, Mapping)}
            if {None if kind is None else kind.name for kind in kinds} == {gpu.name}:
                found.append(read_study(store, study))
        return tuple(found)


def forecasts_for(question: Question) -> Forecasts:
    """Returns the memory and phase-time models of ``question``, fitted to no trial."""
    return Forecasts(
        times=PhaseTimes(question.gpu.figures).fitted(question.task(active=True), ()),
        peaks=MemoryModel.before(question.task()),
        tokens=question.tokens,
        capacity=question.gpu.memory,
    )
