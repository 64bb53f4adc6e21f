"""The places of a running study (a node, or some GPUs of one), and what each does now."""

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
    """State of a place."""

    RUNNING = "running"
    FREE = "free"
    LEFT = "left"
    """It gets no more trials."""


@dataclass(frozen=True)
class PlaceNow:
    """A place of a running study or trial."""

    at: TrialPlace
    """Without GPUs while no trial is there."""
    state: PlaceState
    trial: int | None = None
    """That runs there."""
    why: str = ""
    """Of one that gets no more trials."""
    busy: float | None = None
    """Share of the last cycle in which its GPUs computed, if they were sampled."""


def running_trials(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials in state RUNNING, by number."""
    return tuple(t for t in trials if t.state is TrialState.RUNNING)


def read_places(store: Store, study: Study, trials: Sequence[Trial], began: Event | None) -> tuple[PlaceNow, ...]:
    """The running tuner's places, and the places of trials that run elsewhere; ``began`` is the tuner's first event."""
    after = 0 if began is None else began.id
    over = began is None or bool(store.events(study.id, after, 1, "study_ended"))
    spots = () if over or began is None else _spots(began.data)
    left = {_spot(e.data): str(e.data.get("why") or "") for e in store.events(study.id, after, 1000, "place_left")}
    running = [(trial, place_of(store.notes(study.id, trial.number))) for trial in running_trials(trials)]
    return places_now(spots, running, left)


def _spots(data: Mapping[str, Any]) -> tuple[TrialPlace, ...]:
    """Returns the places that a tuner named at its start."""
    names = data.get("places") or [""]
    nodes = data.get("nodes") or [""] * len(names)
    return tuple(_spot({"place": name, "node": node}) for name, node in zip(names, nodes, strict=False))


def _spot(data: Mapping[str, Any]) -> TrialPlace:
    return TrialPlace(str(data.get("place") or ""), node=str(data.get("node") or ""))


def places_now(
    spots: Sequence[TrialPlace], running: Sequence[tuple[Trial, TrialPlace]], left: Mapping[TrialPlace, str]
) -> tuple[PlaceNow, ...]:
    """Pure. A trial that runs in a place that is not among ``spots`` adds one.

    Args:
        left: place that gets no more trials -> why.
    """
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
    """``GPU busy 97 %``; empty where it was not sampled."""
    return "" if place.busy is None else f"GPU busy {100 * place.busy:.0f} %"


def idle_words(places: Sequence[PlaceNow]) -> tuple[str, ...]:
    """``GPU 3 is free``, ``GPU 1 gets no more trials: it has fallen off the bus (XID 79)``; none of a single place."""
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
