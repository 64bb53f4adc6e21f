"""Prior knowledge of a search: the measured speed of the device, and trials of earlier studies.

Both are stored at the study's first start. A study that started without them, as one whose sampler forecasts nothing,
continues without, so that proposals depend only on the seed, the history and the stored study. Of earlier studies only
the numbers of their trials are stored, because finished trials never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.domain import EarlierStudy, PriorKnowledge, Study, Trial, TrialState
from autotune.errors import UsageError
from autotune.insights.related import began_words, related
from autotune.ports import Store
from autotune.proposals.forecasts import EarlierTrials, PriorData, Task
from autotune.proposals.samplers import forecasts
from autotune.specification.interpreter import Interpreter
from autotune.specification.resolve import Talk
from trainer.child.contract import Result

Speed = Callable[[Mapping[str, Any], str], Result]
"""Type of ``Interpreter.speed``."""

PRESUMED = "the search begins with what such a machine mostly does"
MOST_STUDIES = 3
MOST_TRIALS = 40
"""Most trials of each earlier study."""
_MEASURED = frozenset({TrialState.COMPLETE, TrialState.PRUNED})


def measuring(python: Interpreter, talk: Talk) -> Speed:
    """Returns the probe of an interpreter; ``talk`` receives a message if it has to measure, which takes about 10 s."""

    def speed(hardware: Mapping[str, Any], device: str) -> Result:
        if not python.knows_speed(hardware, device):
            talk("measuring what the device can do, once for this machine (about 10 s; no trial runs meanwhile)")
        return python.speed(hardware, device)

    return speed


def begun(
    study: Study, store: Store, speed: Speed, hardware: Mapping[str, Any], talk: Talk, *, history: bool = True
) -> Study:
    """Stores the prior knowledge of the study's sampler before its first trial ends; returns the study with it.

    ``talk`` receives failed measurements and the earlier studies. Raises ``UsageError``: ``history`` is false, but the
    study began with earlier studies.
    """
    if not forecasts(study.spec.sampler):
        return study
    if study.beforehand is None and not any(t.state.is_finished for t in store.trials(study.id)):
        probe = _probed(study, speed, hardware, talk)
        earlier = earlier_studies(study, store) if history else ()
        study = store.set_beforehand(study.id, PriorKnowledge(probe, earlier, history))
    if not history and study.beforehand is not None and study.beforehand.earlier:
        name = study.spec.name
        raise UsageError(
            f"study {name!r} began with what study {study.beforehand.earlier[0].name!r} measured, and goes on so: "
            "--no-history counts at a study's first start; --name starts another study"
        )
    for words in began_words(study.beforehand):
        talk(f"begins with {words}")
    return study


def _probed(study: Study, speed: Speed, hardware: Mapping[str, Any], talk: Talk) -> Mapping[str, Any]:
    result = speed(hardware, study.spec.resources.device)
    if result.ok:
        return result.data
    said = result.message or result.detail or "the probe failed"
    talk(f"the device could not be measured ({said}); {PRESUMED}")
    return {}


def earlier_studies(study: Study, store: Store) -> tuple[EarlierStudy, ...]:
    """Returns the nearest related studies with measured trials, nearest first, at most ``MOST_STUDIES``."""
    found: list[EarlierStudy] = []
    for one in related(store.studies(), study.spec):
        numbers = telling(store.trials(one.study.id))
        if numbers:
            found.append(EarlierStudy(one.study.id, one.study.spec.name, numbers, one.distance, one.sentence))
        if len(found) == MOST_STUDIES:
            break
    return tuple(found)


def telling(trials: Sequence[Trial]) -> tuple[int, ...]:
    """Returns the numbers of a search's measured trials; of more than ``MOST_TRIALS``, an evenly spread selection."""
    numbers = [
        t.number for t in trials if t.kind.is_searched and t.state in _MEASURED and t.speed_cycles() and not t.emulated
    ]
    if len(numbers) <= MOST_TRIALS:
        return tuple(numbers)
    return tuple(numbers[i * len(numbers) // MOST_TRIALS] for i in range(MOST_TRIALS))


def prior_data(study: Study, store: Store) -> PriorData:
    """Returns the prior knowledge with the trials of earlier studies. Raises ``NotFoundError``: one of them is gone."""
    known = study.beforehand
    if known is None:
        return PriorData()
    return PriorData(known.probe, tuple(_with_trials(one, store) for one in known.earlier))


def _with_trials(one: EarlierStudy, store: Store) -> EarlierTrials:
    there, numbers = store.study(one.study_id), frozenset(one.trials)
    trials = tuple(t for t in store.trials(one.study_id) if t.number in numbers)
    probe = {} if there.beforehand is None else there.beforehand.probe
    return EarlierTrials(Task.of(there.spec), trials, one.distance, probe)
