"""``ports.TrialRunner`` of a place on another machine: follows the agent there.

What is not answered for in time, because the agent, its machine or the way there is gone, is an outcome of the machine
(INFRA), and the attempt is repeated elsewhere. An agent ends what it runs when it hears no more.
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
    """An agent does not answer any more.

    Args:
        place: so is its place: no other agent can be had there.
    """

    def __init__(self, why: str, *, place: bool = False) -> None:
        super().__init__(why)
        self.place = place


class Remote(Protocol):
    """``Agent`` from afar. Each call may raise ``LostError``."""

    def free_port(self) -> int: ...

    def begin(self, assignment: Assignment) -> None: ...

    def hear(self, answer: Answer) -> list[Message]: ...

    def alive(self) -> None:
        """Does not wait, and raises nothing."""

    def close(self) -> tuple[int, ...]: ...

    def sweep(self, study_id: int) -> tuple[int, ...]: ...


class PlaceRunner:
    """Runs attempts in one place of a cluster.

    Args:
        hire: starts an agent there; may raise ``LostError``.
        release: gives the place back.
        recover: reads what an attempt left in a folder that all machines share.
        agent: the first, if there is one already.
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
        """Tells the agent that the tuner is there, which may be busy for long, or have nothing for it to do."""
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
        """A free port on the node. May raise ``LostError``."""
        return self._at_rest(lambda agent: agent.free_port())[1]

    def _begun(self, assignment: Assignment) -> Remote:
        return self._at_rest(lambda agent: agent.begin(assignment))[0]

    def _at_rest(self, ask: Callable[[Remote], T]) -> tuple[Remote, T]:
        """The agent, with what it answers; another one if it was lost while it had nothing to do."""
        if self._agent is not None:
            with contextlib.suppress(LostError):
                return self._agent, ask(self._agent)
            self._agent = None
        agent = self._known()
        return agent, ask(agent)

    def _known(self) -> Remote:
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
            return self._known().sweep(study_id)
        except LostError:  # the first attempt there will say so
            self._agent = None
            return ()

    def recover(self, directory: Path) -> tuple[tuple[Record, ...], Result | None]:
        return self._recover(directory)


def lost_report(lost: LostError, seconds: float, started: bool) -> RunReport:
    """Report of an attempt whose agent cannot be reached any more."""
    outcome = Outcome(reason=FailureReason.INFRA, message=str(lost))
    return RunReport(outcome, seconds, absent=lost.place and not started, place_lost=str(lost) if lost.place else "")


class _Attempt:
    """One attempt, followed until its end."""

    def __init__(self, agent: Remote, watcher: Watcher, stop: StopToken) -> None:
        self._agent, self._watcher, self._stop = agent, watcher, stop
        self._stored = 0
        self._enough: bool | None = None
        self._failure: BaseException | None = None

    def follow(self) -> RunReport:
        """Follows the attempt and returns its report. Raises what the watcher raised, once the attempt is ended."""
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
