"""Lists the places (trial slots) of a running study, each a node or some of its GPUs, with their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autotune.domain import Event, Study, Trial, TrialState
from autotune.domain.places import TrialPlace, place_of
from autotune.machine.gpu_samples import WHOLE
from autotune.ports import Store
from autotune.wording.text import clean


class PlaceState(StrEnum):
    """State of a trial slot."""

    RUNNING = "running"
    FREE = "free"
    LEFT = "left"
    """The slot gets no more trials."""


@dataclass(frozen=True)
class PlaceNow:
    """A slot of a running study or trial."""

    at: TrialPlace
    """The slot itself, without GPUs while no trial runs there."""
    state: PlaceState
    trial: int | None = None
    """Number of the trial that runs there."""
    why: str = ""
    """Reason why the slot gets no more trials."""
    busy: float | None = None
    """Busy share of its GPUs in the last cycle, 0..1; ``None`` if it was not sampled."""


def running_trials(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Returns the trials in state RUNNING, ordered by number."""
    return tuple(t for t in trials if t.state is TrialState.RUNNING)


def read_places(store: Store, study: Study, trials: Sequence[Trial], began: Event | None) -> tuple[PlaceNow, ...]:
    """Reads the running tuner's slots, and slots of trials elsewhere; ``began`` is the tuner's first event."""
    after = 0 if began is None else began.id
    over = began is None or bool(store.events(study.id, after, 1, "study_ended"))
    spots = () if over or began is None else _spots(began.data)
    left = {_spot(e.data): str(e.data.get("why") or "") for e in store.events(study.id, after, 1000, "place_left")}
    running = [(trial, place_of(store.notes(study.id, trial.number))) for trial in running_trials(trials)]
    return places_now(spots, running, left)


def _spots(data: Mapping[str, Any]) -> tuple[TrialPlace, ...]:
    """Returns the slots that a tuner named at its start."""
    names = data.get("places") or [""]
    nodes = data.get("nodes") or [""] * len(names)
    return tuple(_spot({"place": name, "node": node}) for name, node in zip(names, nodes, strict=False))


def _spot(data: Mapping[str, Any]) -> TrialPlace:
    return TrialPlace(str(data.get("place") or ""), node=str(data.get("node") or ""))


def places_now(
    spots: Sequence[TrialPlace], running: Sequence[tuple[Trial, TrialPlace]], left: Mapping[TrialPlace, str]
) -> tuple[PlaceNow, ...]:
    """Combines slots and running trials. Pure. A trial in a slot outside ``spots`` adds that slot. ``left``: slot that
    gets no more trials -> reason."""
    waiting, found = list(running), []
    for spot in spots:
        here = next((one for one in waiting if (one[1].name, one[1].node) == (spot.name, spot.node)), None)
        if here is not None:
            waiting.remove(here)
            found.append(_busy(*here))
        elif spot in left:
            found.append(PlaceNow(spot, PlaceState.LEFT, why=left[spot]))
        else:
            found.append(PlaceNow(spot, PlaceState.FREE))
    return (*found, *(_busy(*one) for one in waiting))


def busy_words(place: PlaceNow) -> str:
    """Describes the use of a slot's GPUs: ``GPU busy 97 %``; empty if it was not sampled."""
    return "" if place.busy is None else f"GPU busy {100 * place.busy:.0f} %"


def idle_words(places: Sequence[PlaceNow]) -> tuple[str, ...]:
    """Lists idle slots, if there are several: ``GPU 3 is free``, ``GPU 1 gets no more trials: it has ...``."""
    found = []
    for place in places if len(places) > 1 else ():
        if place.state is PlaceState.FREE:
            found.append(f"{place.at.short} is free")
        elif place.state is PlaceState.LEFT:
            found.append(f"{place.at.short} gets no more trials: {place.why.removeprefix(f'{place.at.short}: ')}")
    return tuple(clean(sentence) for sentence in found)


def _busy(trial: Trial, at: TrialPlace) -> PlaceNow:
    sampled = [c.gpu[WHOLE].busy for c in trial.cycles if WHOLE in c.gpu]
    return PlaceNow(at, PlaceState.RUNNING, trial.number, busy=sampled[-1] if sampled else None)
