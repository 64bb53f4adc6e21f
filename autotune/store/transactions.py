"""Runs each function in one transaction, exactly once, and waits a bounded time for a server that is away."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Engine, delete
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from autotune.errors import StoreError
from autotune.ports import Clock, StopToken
from autotune.store.backend import WRITE, Backend, TryAgainError, explained
from autotune.store.models import ReceiptRow

Talk = Callable[[str], None]


@dataclass(frozen=True)
class OutageLimits:
    """Limits on waiting for a server that is away, in seconds."""

    total_s: float = 300.0
    """Longest outage: a restart takes seconds, a failover a minute or two."""
    first_s: float = 0.1
    longest_s: float = 5.0
    """Longest pause between two tries; pauses double up to this."""


class Patient:
    """Runs database calls and repeats them while the server is away or the file is locked.

    After it has given up, it tries each call only once until one succeeds, so that cleaning up after the error does not
    wait as long again.
    """

    def __init__(
        self, backend: Backend, patience: OutageLimits, clock: Clock, talk: Talk, stop: StopToken | None
    ) -> None:
        self._backend = backend
        self._patience = patience
        self._clock = clock
        self._talk = talk
        self._stop = stop
        self._gave_up = False
        self._announced = False

    def do(self, action: Callable[[], T]) -> T:
        """Runs ``action``, which must be repeatable, until it succeeds, and returns its result.

        Raises:
            Exception: the action's own, if the server is not away, or has been away for too long.
        """
        began, pause, tried = self._clock.monotonic(), self._patience.first_s, 0
        while True:
            try:
                result = action()
            except Exception as error:
                away = self._clock.monotonic() - began
                if not (isinstance(error, TryAgainError) or self._backend.lost(error)):
                    raise
                if self._gave_up or away >= self._patience.total_s or self._stopped():
                    self._gave_up = True
                    raise
                tried += 1
                if tried > 1 or not self._backend.remote:  # A server's first time may be one connection that broke.
                    self._say_away(error)
                    self._clock.sleep(min(pause, self._patience.total_s))
                    pause = min(2 * pause, self._patience.longest_s)
            else:
                self._say_back(self._clock.monotonic() - began)
                return result

    def _stopped(self) -> bool:
        return self._stop is not None and self._stop.level >= 2

    def _say_away(self, error: Exception) -> None:
        if not self._announced:
            self._announced = True
            minutes = self._patience.total_s / 60
            how = "away" if self._backend.remote else "in use"
            self._talk(
                f"{self._backend.place} is {how} ({self._backend.explain(error)}); "
                f"trying again for up to {minutes:.0f} min, and nothing measured meanwhile is lost"
            )

    def _say_back(self, away: float) -> None:
        self._gave_up = False
        if self._announced:
            self._announced = False
            self._talk(f"{self._backend.place} is {'back' if self._backend.remote else 'free'} after {away:.0f} s")


T = TypeVar("T")
Work = Callable[[Session], T]


class Transactions:
    """The transactions of one store; threads may share it."""

    def __init__(self, backend: Backend, engine: Engine, patient: Patient) -> None:
        self._backend = backend
        self._engine = engine
        self._patient = patient
        self._closed = False
        self._mine = threading.local()
        self._writers: list[str] = []

    def read(self, work: Work[T]) -> T:
        """Runs ``work`` on a consistent snapshot of the database and returns its result."""
        with self._open():
            return self._patient.do(lambda: self._once(work, write=False))

    def write(self, work: Work[T]) -> T:
        """Runs ``work`` in a durable transaction and returns its result.

        When a server goes away after a commit was sent, the commit may have succeeded. So every transaction leaves a
        receipt, and a repeated one looks for it first.
        """
        with self._open():
            if not self._backend.remote:
                return self._patient.do(lambda: self._write_once(work))
            writer, ticket = self._next_ticket()
            results: list[T] = []

            def with_receipt(session: Session) -> T:
                if not _has_receipt(session, writer, ticket):
                    self._backend.guard(session)
                    results.append(work(session))
                # Of several tries only the last can have gone through: each waits for the one before it to end.
                return results[-1]

            return self._patient.do(lambda: self._once(with_receipt, write=True))

    def close(self) -> None:
        """Closes the store, any number of times; later reads and writes raise ``StoreError``."""
        if not self._closed and self._writers:
            mine = delete(ReceiptRow).where(ReceiptRow.writer.in_(self._writers))
            with suppress(SQLAlchemyError, StoreError):  # A receipt left behind is in nobody's way.
                self._once(lambda session: session.execute(mine), write=True)
        self._closed = True
        self._engine.dispose()

    def _open(self) -> AbstractContextManager[None]:
        if self._closed:
            raise StoreError(f"{self._backend.place} has been closed")
        return explained(self._backend)

    def _once(self, work: Work[T], *, write: bool) -> T:
        engine = self._engine.execution_options(**{WRITE: write})
        with self._backend.turn(), Session(engine) as session, session.begin():
            return work(session)

    def _write_once(self, work: Work[T]) -> T:
        def guarded(session: Session) -> T:
            self._backend.guard(session)
            return work(session)

        result = self._once(guarded, write=True)
        self._backend.confirm()
        return result

    def _next_ticket(self) -> tuple[str, int]:
        """Returns (name of this thread among all writers, number of its next write)."""
        if not hasattr(self._mine, "writer"):
            self._mine.writer, self._mine.ticket = uuid.uuid4().hex, 0
            self._writers.append(self._mine.writer)
        self._mine.ticket += 1
        return self._mine.writer, self._mine.ticket


def _has_receipt(session: Session, writer: str, ticket: int) -> bool:
    """Tells whether this write was committed before; if not, adds its receipt to the transaction.

    Waits for an earlier try that is still running. Raises ``TryAgainError`` if that one commits first.
    """
    row = session.get(ReceiptRow, writer, with_for_update=True)
    if row is None:
        session.add(ReceiptRow(writer=writer, ticket=ticket))
        try:
            session.flush()
        except IntegrityError as error:
            raise TryAgainError("an earlier try of the same write is still on its way") from error
        return False
    if row.ticket == ticket:
        return True
    row.ticket = ticket
    return False
