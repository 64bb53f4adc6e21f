"""Connects to PostgreSQL, locks studies there and explains its errors. The address alone selects it.

A lock is an advisory lock of a server session, whose ``application_name`` names its process. Everyone sees it in
``pg_stat_activity``, and it ends with the session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from autotune.errors import StoreError
from autotune.ports import StudyLock
from autotune.settings import DATABASE_VARIABLE
from autotune.store.backend import WRITE, Backend, explained
from autotune.store.locks import Holder, busy

LOCK_SPACE = 0x41544E45
"""First half of the keys of autotune's advisory locks, "ATNE": keeps them apart from other applications' locks."""
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
        locks: list[AdvisoryLock],
        explained: Callable[[], Any],
    ) -> None:
        self._engine = engine
        self._key = {"space": LOCK_SPACE, "key": study_id}
        self._name = name
        self._held = locks
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
        """Checks that this process still has the lock; acquires it again if the server has lost it.

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
    return f"{_PREFIX}/{here.pid}/{here.since:.0f}/{uuid.uuid4().hex[:6]}/{here.host}"[:63]


def _holder(mark: str) -> Holder | None:
    parts = mark.split("/", 4)
    if len(parts) != 5 or parts[0] != _PREFIX or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return Holder(parts[4], int(parts[1]), float(parts[2]))


_CREATION_TIMEOUT_S = 60

_CONNECTING: Mapping[str, int | str] = {
    "application_name": "autotune",
    "connect_timeout": 10,
    # A server that has vanished from the network is noticed within a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Connection parameters that apply unless the address sets them."""

_LOCK_NOT_AVAILABLE = "55P03"
_AWAY = frozenset(
    {
        "57P01",  # the administrator ended the connection
        "57P02",  # another process of the server crashed
        "57P03",  # starting up or shutting down
        "57P05",  # idle for too long
        "53300",  # too many connections
        "40001",  # could not be put in order with another transaction
        "40P01",  # deadlock
    }
)
_ADVICE: Mapping[str, str] = {
    "53100": "the server's disk is full; make room there and start again (what was acknowledged is kept)",
    "25006": "it can only be read; name the server that takes writes",
    "42501": "{0}; the user needs the right to create and change tables here",
    "57P04": "the database has been dropped",
}


class Postgresql(Backend):
    """A database on a PostgreSQL server."""

    remote = True

    def __init__(self, url: URL) -> None:
        self._url = url
        self._held: list[AdvisoryLock] = []

    @property
    def place(self) -> str:
        port = f":{self._url.port}" if self._url.port else ""
        return f"PostgreSQL database {self._url.database or ''} on {self._url.host or 'this machine'}{port}"

    def engine(self) -> Engine:
        connecting = {key: value for key, value in _CONNECTING.items() if key not in self._url.query}
        try:
            engine = create_engine(
                self._url,
                pool_pre_ping=True,
                pool_timeout=10.0,
                hide_parameters=True,
                connect_args=connecting,
            )
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{self.place}: the package {error.name} is missing; pip install 'psycopg[binary]>=3.3,<4' brings it"
            ) from None

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # A reader's several queries must see one moment; writers wait for each other at the study's row.
            if not connection.get_execution_options().get(WRITE, False):
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        return engine

    @contextmanager
    def creation(self, engine: Engine) -> Iterator[None]:
        with server_session(engine) as connection:
            connection.exec_driver_sql(f"SET lock_timeout = '{_CREATION_TIMEOUT_S}s'")
            try:
                key = {"space": LOCK_SPACE, "key": 0}
                connection.execute(text("SELECT pg_advisory_lock(:space, :key)"), key)
            except DBAPIError as error:
                if _state(error) != _LOCK_NOT_AVAILABLE:
                    raise
                raise StoreError(
                    f"{self.place} has been under preparation by another process for {_CREATION_TIMEOUT_S} s; "
                    "end that process and start again"
                ) from None
            yield

    def study_lock(self, engine: Engine, study_id: int, name: str) -> StudyLock:
        return AdvisoryLock(engine, study_id, name, self._held, lambda: explained(self))

    def guard(self, session: Session) -> None:
        for lock in tuple(self._held):
            lock.hold(session)

    def lost(self, error: Exception) -> bool:
        if not isinstance(error, DBAPIError):
            return False
        state = _state(error)
        # Whoever cannot connect is not told why by a code.
        unreachable = state is None and type(error.orig).__name__ == "OperationalError"
        return error.connection_invalidated or unreachable or state in _AWAY or (state or "").startswith("08")

    def explain(self, error: Exception) -> str:
        cause = error.orig if isinstance(error, DBAPIError) else error
        sentence = _first_sentence(str(cause)) or type(cause).__name__
        for secret in {self._url.password, self._url.username} - {None, ""}:
            sentence = sentence.replace(str(secret), "***")
        if "password" in sentence:
            sentence += f"; give it by PGPASSWORD, ~/.pgpass or {DATABASE_VARIABLE}"
        return _ADVICE.get(_state(error) or "", "{0}").format(sentence)


def _state(error: Exception) -> str | None:
    """Returns the server's five-character error code; ``None`` without one."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _first_sentence(message: str) -> str:
    """Returns the first line of a driver's message; among several tries to connect, the last one's."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    tries = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return (tries or lines or [""])[-1 if tries else 0]
