"""Studies in a real SQLite file, and a reader who asks the application as HTTP does, without a socket."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from api.app import create_app
from api.cache import StudyCache
from api.guard.codes import Codes
from api.guard.security import Access
from api.listening import listen, url_of
from api.server import ThreadServer
from autotune.domain import Budget, Study, TrialKind, TrialState
from autotune.ports import Store
from autotune.settings import Settings, read_settings
from autotune.store import open_store
from search_spaces.space import SearchSpace
from tests.support import factories
from tests.support.fakes import FakeClock
from tests.support.recorded import copied_study, record
from tests.support.simulated import SimulatedRunner, study_loop

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
        }
    }
)
URL = "http://127.0.0.1:7788"
TOKEN = "correct-horse-battery-staple"


def settings_in(folder: Path) -> Settings:
    """A home of its own, whatever the environment says."""
    settings = read_settings(environ={"AUTOTUNE_HOME": str(folder / "home")})
    settings.home.prepare()
    return settings


def whole_study(settings: Settings, name: str = "first", **changes: Any) -> Study:
    """A study the real loop has run to its end on a simulated machine: gains, OOMs, confirmations.

    In a new SQLite file it is the copy of one that was run once; in any other database it is run.
    """
    if "://" in settings.database or Path(settings.database).exists():
        store = open_store(settings.database)
        found = _run(store, name, changes)
        store.close()
        return found
    alike = hashlib.sha256(repr((name, sorted(changes.items()))).encode()).hexdigest()[:16]
    return copied_study(f"whole-study-{alike}", settings.database, lambda store: _run(store, name, changes))


def _run(store: Store, name: str, changes: Mapping[str, Any]) -> Study:
    clock, limit = FakeClock(), 5 * factories.GIB
    spec = factories.study_spec(name, **{"space": SPACE.as_json(), "memory_limit": limit, **changes})
    study = store.create_study(spec, clock.now())
    store.save_fingerprint(study.id, factories.fingerprint(), clock.now())
    runner = SimulatedRunner(clock, memory_limit=limit)
    study_loop(store, study.id, clock, Budget(wall_s=3600.0), runner=runner).run()
    return store.study(study.id)


def usual_study(store: Store) -> Study:
    """A baseline, a faster trial, an OOM, a running and a waiting trial; 95 s used."""
    made = store.create_study(factories.study_spec(), factories.NOW)
    faster = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
    bigger = factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1)
    record(store, made, factories.finished(0, cycle_seconds=10.0))
    record(store, made, factories.finished(1, cycle_seconds=5.0, configuration=faster))
    record(store, made, factories.failed(2, configuration=bigger))
    record(store, made, factories.trial(3, state=TrialState.RUNNING, configuration=bigger.with_(precision="bf16")))
    record(store, made, factories.trial(4, TrialKind.CONFIRM, configuration=faster, pair=0))
    store.spend(store.open_session(made.id, factories.NOW), 95.0, 0.0, factories.NOW)
    return made


def _begin(store: Store) -> Study:
    made = usual_study(store)
    store.add_event(made.id, factories.event("session_started", data={"wall_s": 600.0, "max_trials": 9}))
    return made


def running_study(settings: Settings) -> Study:
    """A study that runs: a baseline, a faster trial, an OOM, a running and a waiting one."""
    return copied_study("running-study", settings.database, _begin)


@contextmanager
def tuner_of(settings: Settings, study: Study) -> Iterator[None]:
    """Holds the study's lock as the tuner that runs it does."""
    with closing(open_store(settings.database)) as store, store.lock(study.id):
        yield


class Served:
    """A reader's application on a real socket, for what needs one: streams, clients, slow readers."""

    def __init__(self, reader: Reader) -> None:
        bound = listen("127.0.0.1", 0)
        self.url = url_of(bound, "127.0.0.1")
        self.port: int = bound.getsockname()[1]
        self._server = ThreadServer(reader.app, bound)
        self._server.start()

    def close(self) -> None:
        self._server.stop()


class Reader:
    """Asks the whole application, guard included. Errors the program did not expect are in ``crashes``."""

    def __init__(
        self, settings: Settings, access: Access | None = None, open_it: Any = None, *, allow_control: bool = False
    ) -> None:
        self.crashes: list[Exception] = []
        self.codes: list[str] = []
        """One-time codes, as the terminal shows them."""
        self.cache = StudyCache(settings, open_it or partial(open_store, settings.database), patience=0.0)
        self.app = create_app(
            self.cache,
            access or Access(),
            self.crashes.append,
            "1.2.3",
            allow_control=allow_control,
            codes=Codes(self.codes.append),
        )

    def ask(self, path: str, method: str = "GET", url: str = URL, **rest: Any) -> httpx.Response:
        """One request."""

        return self.ask_all([(method, path, rest)], url)[0]

    def ask_all(self, requests: Iterable[tuple[str, str, Mapping[str, Any]]], url: str = URL) -> list[httpx.Response]:
        """Many, one after the other: each a method, a path, and what ``httpx`` takes beside them."""

        async def asking() -> list[httpx.Response]:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=url) as client:
                return [await client.request(method, path, **rest) for method, path, rest in requests]

        return asyncio.run(asking())

    def json(self, path: str, **rest: Any) -> Any:
        """The document at ``path``, which must be there."""
        answer = self.ask(path, **rest)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def page(self, path: str, headers: Mapping[str, str] | None = None) -> str:
        """The page at ``path``, which must be there."""
        answer = self.ask(path, headers={"Accept": "text/html", **(headers or {})})
        assert answer.status_code == 200, answer.text
        return answer.text


def words_of(page: str) -> str:
    """What is read, without the tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
