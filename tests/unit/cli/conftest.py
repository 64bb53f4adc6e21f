"""A home with a real SQLite store, and the command line as a user meets it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotune import wiring as real_wiring
from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.domain import Budget, Outcome, Study
from autotune.frameworks import framework_named
from autotune.machine.clock import SystemClock
from autotune.proposals.proposer import make_proposer
from autotune.settings import HomePaths, read_settings
from autotune.specification.config_faults import Faults
from autotune.store import open_store
from autotune.study.loop import StudyLoop
from search_spaces.frameworks import SHORT
from search_spaces.space import SearchSpace
from tests.support import factories
from tests.support.recorded import copied_study
from tests.support.served import usual_study
from tests.support.simulated import SimulatedRunner

Run = Callable[..., tuple[int, str, str]]
"""Arguments -> (exit code, stdout, stderr)."""

LOG = factories.oom().log_path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    root = tmp_path / "home"
    for name in ("AUTOTUNE_DATABASE", "AUTOTUNE_DEBUG", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOTUNE_HOME", str(root))
    return read_settings().home


class Wiring:
    """The real wiring; what is set on it stands in for its own while the test runs, and must be there already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        object.__setattr__(self, "_patch", monkeypatch.setattr)

    def __setattr__(self, name: str, stand_in: Any) -> None:
        self._patch(real_wiring, name, stand_in)


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing in it starts a process of its own; the store is the real one."""
    module = Wiring(monkeypatch)

    def open_store_for(settings: Any, stop: Any = None, *, create: bool = True) -> Any:
        settings.home.prepare()
        return open_store(settings.database, create=create)

    packages = {
        "torch": "2.13.0",
        "trl": "1.16.0",
        "transformers": "5.17.0",
        "accelerate": "1.15.0",
        "datasets": "5.2.0",
    }
    module.open_store_for = open_store_for
    module.config_faults = lambda *_: Faults()
    module.probe = lambda python: {"python": "3.11.7", "packages": packages, "trl_supported": True}
    return module


@pytest.fixture
def autotune(home: HomePaths, wiring: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process; returns (exit code, stdout, stderr)."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        code = exit_code_of(lambda: build_app()(list(arguments), prog_name="autotune"))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def study(home: HomePaths) -> Study:
    """A study with a baseline, a faster trial, an OOM, a running and a waiting trial; 95 s used."""
    home.prepare()
    made = copied_study("usual-study", str(home.database), usual_study)
    log = home.attempt(made.id, "first", 2, 1) / "log.txt"
    with closing(sqlite3.connect(home.database)) as database, database:
        database.execute("UPDATE trials SET outcome = replace(outcome, ?, ?)", (LOG, str(log)))
    return made


@pytest.fixture(scope="session")
def training_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has every framework, as far as a glance at its folders tells."""
    folder = tmp_path_factory.mktemp("training")
    for framework in SHORT:
        for each in framework_named(framework).environment.needed:
            (folder / "lib/python3/site-packages" / each.name.replace("-", "_")).mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _active(training_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(training_environment))


@pytest.fixture
def tuner(home: HomePaths, study: Study) -> Iterator[None]:
    """Holds the study's lock, as the tuner that runs it does."""
    with closing(open_store(str(home.database))) as store, store.lock(study.id):
        yield


class Runs:
    """What the fake wiring was asked, and how its trials end."""

    def __init__(self) -> None:
        self.limits: list[Budget] = []
        self.outcome: Outcome | None = None
        self.on_cycle: Callable[[Any, int], None] = lambda *_: None


@pytest.fixture
def runs(wiring: Any) -> Runs:
    seen = Runs()

    class Clock(SystemClock):
        def advance(self, seconds: float) -> None:
            """Simulated time costs none."""

    def loop(
        study: Any, limits: Budget, store: Any, settings: Any, observer: Any, stop: Any, *_: Any, **__: Any
    ) -> Any:
        seen.limits.append(limits)
        clock, spec = Clock(), study.spec

        def acts(trial: Any, index: int) -> None:
            seen.on_cycle(trial, index)

        space = SearchSpace.from_json(spec.space)
        return StudyLoop(
            study=study,
            budget=limits,
            store=store,
            proposer=make_proposer(space, spec.baseline, spec.resources, "tpe", 0),
            runner=SimulatedRunner(clock, tamper=lambda _: seen.outcome, on_cycle=acts),  # type: ignore[arg-type]
            clock=clock,
            observer=observer,
            stop=stop,
            directory_of=lambda t: settings.home.attempt(study.id, spec.name, t.number, t.attempt),
        )

    wiring.present_fingerprint = lambda spec, settings, talk: factories.fingerprint()
    wiring.check_machine = lambda store, study, fingerprint: None
    wiring.loop = loop
    return seen
