"""A home with studies, and somebody who reads it over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.guard.security import Access
from autotune.domain import Study
from autotune.settings import Settings
from tests.support.served import TOKEN, Reader, running_study, settings_in, tuner_of, whole_study


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


@pytest.fixture
def study(settings: Settings) -> Iterator[Study]:
    """A study that runs: a baseline, a faster trial, an OOM, a running and a waiting one."""
    made = running_study(settings)
    with tuner_of(settings, made):
        yield made


@pytest.fixture
def interrupted(settings: Settings) -> Study:
    """The same whose tuner was killed."""
    return running_study(settings)


@pytest.fixture
def locked(finished_home: Settings) -> Iterator[Reader]:
    """A server that wants a token."""
    reader = Reader(finished_home, Access(token=TOKEN))
    yield reader
    reader.cache.close()
