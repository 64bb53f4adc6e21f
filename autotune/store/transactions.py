"""Runs each function in one transaction, exactly once even if the server goes away."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

from sqlalchemy import Engine, delete
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from autotune.errors import StoreError
from autotune.store.backend import WRITE, Backend, TryAgainError, explained
from autotune.store.models import ReceiptRow
from autotune.store.patience import Patient

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
                return self._patient.do(lambda: self._written(work))
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

    def _written(self, work: Work[T]) -> T:
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
