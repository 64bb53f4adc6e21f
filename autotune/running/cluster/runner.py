"""Runs trials on another machine by its agent. Implements ``ports.TrialRunner``.

If an agent does not answer in time, because it, its machine or the network is gone, the outcome is INFRA, and the
attempt is repeated in another place. An agent that hears no more from the tuner ends its trial.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from autotune.domain import FailureReason, Outcome
from autotune.ports import Assignment, Clock, RunReport, StopToken, Watcher
from autotune.running.cluster.agent import Answer, End, Message
from trainer.child.contract import CurrentPhase, Record, Result

PULSE_S = 2.0
T = TypeVar("T")


class LostError(Exception):
    """Raised if an agent does not answer any more.

    Args:
        place: true if its place is lost too: no other agent can start there.
    """

    def __init__(self, why: str, *, place: bool = False) -> None:
        super().__init__(why)
        self.place = place


class Remote(Protocol):
    """Interface of a remote ``Agent``. Each call may raise ``LostError``."""

    def free_port(self) -> int: ...

    def begin(self, assignment: Assignment) -> None: ...

    def hear(self, answer: Answer) -> list[Message]: ...

    def alive(self) -> None:
        """Tells the agent that the tuner is alive. Does not wait, and raises nothing."""

    def close(self) -> tuple[int, ...]: ...

    def sweep(self, study_id: int) -> tuple[int, ...]: ...


class PlaceRunner:
    """Runs attempts in one place of a cluster.

    Args:
        hire: starts an agent there; may raise ``LostError``.
        release: releases the place.
        recover: reads an attempt's files in a folder that all machines share.
        agent: the first agent, if it runs already.
    """

    def __init__(
        self,
        hire: Callable[[], Remote],
        release: Callable[[], None],
        recover: Callable[[Path], tuple[tuple[Record, ...], Result | None]],
        clock: Clock,
        agent: Remote | None = None,
    ) -> None:
        self._hire, self._release, self._recover, self._clock = hire, release, recover, clock
        self._agent = agent
        self._over = threading.Event()
        threading.Thread(target=self._pulse, daemon=True, name="pulse").start()

    def _pulse(self) -> None:
        """Tells the agent regularly that the tuner is alive, also while the tuner is busy or has no trial for it."""
        while not self._over.wait(PULSE_S):
            if (agent := self._agent) is not None:
                agent.alive()

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        began, started = self._clock.monotonic(), False
        try:
            agent = self._begun(assignment)
            started = True
            return _Attempt(agent, watcher, stop).follow()
        except LostError as lost:
            self._agent = None
            return lost_report(lost, self._clock.monotonic() - began, started)

    def free_port(self) -> int:
        """Returns a free port of the node. May raise ``LostError``."""
        return self._at_rest(lambda agent: agent.free_port())[1]

    def _begun(self, assignment: Assignment) -> Remote:
        return self._at_rest(lambda agent: agent.begin(assignment))[0]

    def _at_rest(self, ask: Callable[[Remote], T]) -> tuple[Remote, T]:
        """Returns the agent with its answer; hires another agent if the first was lost while it was idle."""
        if self._agent is not None:
            with contextlib.suppress(LostError):
                return self._agent, ask(self._agent)
            self._agent = None
        agent = self._agent_of_place()
        return agent, ask(agent)

    def _agent_of_place(self) -> Remote:
        if self._agent is None:
            self._agent = self._hire()
        return self._agent

    def close(self) -> tuple[int, ...]:
        self._over.set()
        left: tuple[int, ...] = ()
        if self._agent is not None:
            with contextlib.suppress(LostError):
                left = self._agent.close()
            self._agent = None
        self._release()
        return left

    def sweep(self, study_id: int) -> tuple[int, ...]:
        try:
            return self._agent_of_place().sweep(study_id)
        except LostError:  # the first attempt there will say so
            self._agent = None
            return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        return self._recover(directory)


def lost_report(lost: LostError, seconds: float, started: bool) -> RunReport:
    """Returns the report of an attempt whose agent is lost: INFRA."""
    outcome = Outcome(reason=FailureReason.INFRA, message=str(lost))
    return RunReport(outcome, seconds, absent=lost.place and not started, place_lost=str(lost) if lost.place else "")


class _Attempt:
    """Follows one attempt until its end."""

    def __init__(self, agent: Remote, watcher: Watcher, stop: StopToken) -> None:
        self._agent, self._watcher, self._stop = agent, watcher, stop
        self._stored = 0
        self._enough: bool | None = None
        self._failure: BaseException | None = None

    def follow(self) -> RunReport:
        """Follows the attempt and returns its report. Raises the watcher's error once the attempt has ended."""
        try:
            while True:
                for message in self._agent.hear(self._answer()):
                    if not isinstance(message, End):
                        self._tell(message)
                    elif self._failure is not None:
                        raise self._failure
                    elif message.error is not None:
                        raise message.error
                    elif message.report is not None:
                        return message.report
        except LostError:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _answer(self) -> Answer:
        if self._failure is None:
            try:
                self._watcher.tick()
                self._enough = self._watcher.enough
            except BaseException as error:
                self._failure = error
        return Answer(self._stop.level, self._stored, self._enough, self._failure is not None)

    def _tell(self, message: Record | CurrentPhase) -> None:
        if self._failure is not None:
            return
        try:
            if isinstance(message, CurrentPhase):
                self._watcher.phase(message)
            else:
                self._watcher.record(message)
                self._stored += 1
        except BaseException as error:
            self._failure = error
