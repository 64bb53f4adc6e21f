"""Requests to a running tuner, passed as events of the study in the shared database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain import Event
from autotune.errors import StoreError
from autotune.ports import Clock, StopToken, Store

LOOK_S = 1.0
"""Least seconds between two queries of the database."""
HOLD_S = 0.5
"""Seconds between two checks while the study is paused."""
SUFFIX = "_requested"


class Action(StrEnum):
    """A request to a running tuner."""

    PAUSE = "pause"
    """Start no new trial; the running one continues."""
    RESUME = "resume"
    STOP = "stop"
    """Finish the running trial, then recommend; as Ctrl-C does."""
    CANCEL = "cancel"
    """End now and keep all measurements; as a second Ctrl-C does."""
    RETRY = "retry"
    """Run a trial's configuration again."""
    EXTEND = "extend"
    """Add to the limits of the budget."""

    @property
    def event_kind(self) -> str:
        """Kind of the event that carries the request."""
        return f"{self.value}{SUFFIX}"


@dataclass(frozen=True)
class PendingRequests:
    """The requests made so far."""

    level: int = 0
    """Stop level, as ``StopToken.level``."""
    paused: bool = False
    todo: tuple[Event, ...] = ()
    """Pending requests to run a trial again or to extend the budget."""
    last: int = 0
    """Id of the last event that was read."""


def fold(pending: PendingRequests, events: Iterable[Event]) -> PendingRequests:
    """Returns ``pending`` after the requests among ``events``, in order."""
    for event in events:
        pending = replace(_with(pending, event), last=event.id)
    return pending


def _with(pending: PendingRequests, event: Event) -> PendingRequests:
    if event.kind in (Action.PAUSE.event_kind, Action.RESUME.event_kind):
        return replace(pending, paused=event.kind == Action.PAUSE.event_kind)
    if event.kind in (Action.STOP.event_kind, Action.CANCEL.event_kind):
        return replace(pending, level=max(pending.level, 1 if event.kind == Action.STOP.event_kind else 2))
    if event.kind == Action.EXTEND.event_kind or (event.kind == Action.RETRY.event_kind and event.trial is not None):
        return replace(pending, todo=(*pending.todo, event))
    return pending


class Control:
    """A stop token that also collects the requests since it was created; see ``ports.Requests``."""

    def __init__(self, store: Store, study_id: int, stop: StopToken, clock: Clock) -> None:
        self._store = store
        self._study_id = study_id
        self._stop = stop
        self._clock = clock
        self._asked = PendingRequests(last=store.last_event_id(study_id))
        self._looked = clock.monotonic()

    @property
    def level(self) -> int:
        """Stop level: the higher of the requests from this terminal and from others."""
        self._look()
        return max(self._stop.level, self._asked.level)

    def hold(self) -> float:
        """Waits while the study is paused and not stopped; returns the seconds."""
        began = self._clock.monotonic()
        while self.paused and self.level == 0:
            self._clock.sleep(HOLD_S)
        return self._clock.monotonic() - began

    def todo(self) -> tuple[Event, ...]:
        """Returns the requests to run a trial again or to extend the budget, each once."""
        self._look()
        todo, self._asked = self._asked.todo, replace(self._asked, todo=())
        return todo

    @property
    def paused(self) -> bool:
        """True while no new trial may start; a running one continues."""
        self._look()
        return self._asked.paused

    def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        try:
            while events := self._store.events(self._study_id, self._asked.last):
                self._asked = fold(self._asked, events)
        except StoreError:  # The tuner meets it itself where it matters; nobody can ask for anything meanwhile.
            return
