"""A home with studies, and somebody who reads it over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.domain import Study, TrialKind, TrialState
from autotune.ports import Store
from autotune.settings import Settings
from tests.support import factories
from tests.support.recorded import copied_study, record
from tests.support.served import Reader, settings_in, whole_study


@pytest.fixture(scope="session")
def finished_home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Only read: a study that has ended, with a recommendation. Its id is 1."""
    settings = settings_in(tmp_path_factory.mktemp("finished"))
    whole_study(settings)
    return settings


@pytest.fixture
def finished(finished_home: Settings) -> Iterator[Reader]:
    reader = Reader(finished_home)
    yield reader
    reader.cache.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def reader(settings: Settings) -> Iterator[Reader]:
    made = Reader(settings)
    yield made
    made.cache.close()


def _running_study(store: Store) -> Study:
    made = store.create_study(factories.study_spec(), factories.NOW)
    faster = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
    bigger = factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1)
    record(store, made, factories.finished(0, cycle_seconds=10.0))
    record(store, made, factories.finished(1, cycle_seconds=5.0, configuration=faster))
    record(store, made, factories.failed(2, configuration=bigger))
    record(store, made, factories.trial(3, state=TrialState.RUNNING, configuration=bigger.with_(precision="bf16")))
    record(store, made, factories.trial(4, TrialKind.CONFIRM, configuration=faster, pair=0))
    store.add_event(made.id, factories.event("session_started", data={"wall_s": 600.0, "max_trials": 9}))
    store.spend(store.open_session(made.id, factories.NOW), 95.0, 0.0, factories.NOW)
    return made


@pytest.fixture
def study(settings: Settings) -> Study:
    """A study that runs: a baseline, a faster trial, an OOM, a running and a waiting one."""
    return copied_study("running-study", settings.database, _running_study)
