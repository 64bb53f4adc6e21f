"""PostgreSQL: the only file with SQL of its own; chosen by the address alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autotune.domain import Study
from autotune.errors import StoreError
from autotune.ports import StudyLock
from autotune.store.backend import WRITE
from autotune.store.locks import busy

__all__ = ["Postgresql"]

_LOCK_SPACE = 0x41544E45
"""First half of our advisory locks' keys, so that they meet no other application's; "ATNE"."""
_CREATION = 0
_POOL_TIMEOUT_S = 10.0


class Postgresql:
    """A database on a server."""

    def __init__(self, url: URL) -> None:
        self._url = url

    @property
    def place(self) -> str:
        port = f":{self._url.port}" if self._url.port else ""
        return f"PostgreSQL database {self._url.database or ''} on {self._url.host or 'this machine'}{port}"

    def engine(self) -> Engine:
        try:
            engine = create_engine(self._url, pool_pre_ping=True, pool_timeout=_POOL_TIMEOUT_S, hide_parameters=True)
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{self.place}: the package {error.name} is missing; pip install 'grpo-autotune[postgres]' brings it"
            ) from None

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # A reader's several queries must see one moment; writers wait for each other at the study's row.
            if not connection.get_execution_options().get(WRITE, False):
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        return engine

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    @contextmanager
    def creation(self, engine: Engine) -> Iterator[None]:
        with _session(engine) as connection:
            connection.execute(text("SELECT pg_advisory_lock(:space, :key)"), {"space": _LOCK_SPACE, "key": _CREATION})
            yield

    def ready(self, engine: Engine) -> bool:  # noqa: ARG002 - the server's settings are its owner's
        return True

    def make_ready(self, engine: Engine) -> None:
        """Nothing to make."""

    def schema_change(self, connection: Connection) -> AbstractContextManager[object]:  # noqa: ARG002 - as any other
        return nullcontext()

    def study_lock(self, engine: Engine, study: Study) -> StudyLock:
        return _AdvisoryLock(self, engine, study)

    def explain(self, error: Exception) -> str:
        cause = error.orig if isinstance(error, DBAPIError) else error
        lines = str(cause).splitlines()
        sentence = lines[0] if lines else type(cause).__name__
        for secret in {self._url.password, self._url.username} - {None, ""}:
            sentence = sentence.replace(str(secret), "***")
        return sentence


@contextmanager
def _session(engine: Engine) -> Iterator[Connection]:
    """A server session of its own: what it locked is free when it ends, however it ends."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT", **{WRITE: True}) as connection:
        try:
            yield connection
        finally:
            connection.invalidate()


class _AdvisoryLock:
    """Belongs to one server session, so the server frees it when this process dies."""

    def __init__(self, backend: Postgresql, engine: Engine, study: Study) -> None:
        self._backend = backend
        self._engine = engine
        self._study = study
        self._session = ExitStack()

    def __enter__(self) -> _AdvisoryLock:
        key = {"space": _LOCK_SPACE, "key": self._study.id}
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(_session(self._engine))
                if not connection.execute(text("SELECT pg_try_advisory_lock(:space, :key)"), key).scalar():
                    raise busy(self._study.spec.name, None)
                self._session = stack.pop_all()
        except SQLAlchemyError as error:
            raise StoreError(f"{self._backend.place}: {self._backend.explain(error)}") from error
        return self

    def __exit__(self, *details: object) -> None:
        self._session.close()
