"""Locks of studies on PostgreSQL: advisory locks of server sessions, with the processes that hold them.

The ``application_name`` of a session names its process. Everyone sees it in ``pg_stat_activity``, and it ends with the
session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from autotune.store.backend import WRITE
from autotune.store.locks import Holder, busy

LOCK_SPACE = 0x41544E45
"""First half of the keys of our advisory locks, "ATNE", which keeps them apart from other applications' locks."""
_LONGEST_NAME = 63
_PREFIX = "autotune"

_TAKE = text("SELECT pg_try_advisory_lock(:space, :key)")
_LET_GO = text("SELECT pg_advisory_unlock_all()")
_HOLDERS = text(
    "SELECT l.pid, coalesce(a.application_name, '') FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid = CAST(:space AS oid) AND l.objid = CAST(:key AS oid)"
)
_PREPARE = (
    # The server frees the lock of a machine that has vanished after a minute, not after the two hours of Linux.
    "SELECT set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false), "
    "set_config('tcp_keepalives_count', '3', false)",
    # A session that only holds a lock is idle all the time; older servers do not know the setting.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
)


@contextmanager
def server_session(engine: Engine) -> Iterator[Connection]:
    """Opens a server session whose locks are free when it ends, however it ends."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT", **{WRITE: True}) as connection:
        try:
            yield connection
        finally:
            connection.invalidate()


class AdvisoryLock:
    """Lock of a study that belongs to one server session, so that the server frees it when this process dies.

    A restart of the server frees it as well: ``hold`` takes it again before anything more is written.
    """

    def __init__(
        self,
        engine: Engine,
        study_id: int,
        name: str,
        held: list[AdvisoryLock],
        explained: Callable[[], Any],
    ) -> None:
        self._engine = engine
        self._key = {"space": LOCK_SPACE, "key": study_id}
        self._name = name
        self._held = held
        self._explained = explained
        self._session = ExitStack()
        self._mark = ""

    def __enter__(self) -> AdvisoryLock:
        with self._explained():
            self._take(_new_mark())
        self._held.append(self)
        return self

    def __exit__(self, *details: object) -> None:
        if self in self._held:
            self._held.remove(self)
        self._session.close()

    def is_held(self) -> bool:
        with self._explained(), self._engine.connect() as connection:
            return bool(connection.execute(_HOLDERS, self._key).all())

    def hold(self, session: Session) -> None:
        """Checks that this process still has the lock; takes it again if the server has lost it.

        A session that broke off unnoticed still holds the lock while the server has it.

        Raises:
            StudyBusyError: another tuner has the lock.
        """
        if self._mark not in {name for _, name in session.execute(_HOLDERS, self._key).all()}:
            self._session.close()
            self._take(self._mark)

    def _take(self, mark: str) -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(server_session(self._engine))
            for statement in _PREPARE:
                connection.exec_driver_sql(statement)
            connection.execute(text("SELECT set_config('application_name', :mark, false)"), {"mark": mark})
            if not connection.execute(_TAKE, self._key).scalar():
                holders = connection.execute(_HOLDERS, self._key).all()
                raise busy(self._name, _holder(holders[0][1]) if holders else None)
            # Before the session ends: the server notices that in its own time, and the next tuner may be quicker.
            stack.callback(self._let_go, connection)
            self._mark = mark
            self._session = stack.pop_all()

    @staticmethod
    def _let_go(connection: Connection) -> None:
        with suppress(SQLAlchemyError):  # the session broke off, and with it the lock is gone
            connection.execute(_LET_GO)


def _new_mark() -> str:
    """Returns a name for one lock of this process, as ``application_name`` of the session."""
    here = Holder.this()
    return f"{_PREFIX}/{here.pid}/{here.since:.0f}/{uuid.uuid4().hex[:6]}/{here.host}"[:_LONGEST_NAME]


def _holder(mark: str) -> Holder | None:
    parts = mark.split("/", 4)
    if len(parts) != 5 or parts[0] != _PREFIX or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return Holder(parts[4], int(parts[1]), float(parts[2]))
