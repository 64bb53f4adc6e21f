"""Connects to PostgreSQL and explains its errors. The address alone selects it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from autotune.errors import StoreError
from autotune.ports import StudyLock
from autotune.settings import DATABASE_VARIABLE
from autotune.store.advisory import LOCK_SPACE, AdvisoryLock, server_session
from autotune.store.backend import WRITE, Backend, explained

_CREATION_TIMEOUT_S = 60
_POOL_TIMEOUT_S = 10.0

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
                pool_timeout=_POOL_TIMEOUT_S,
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
    """Returns the first line of a driver's message; of several tries to connect, the last one's."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    tries = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return (tries or lines or [""])[-1 if tries else 0]
