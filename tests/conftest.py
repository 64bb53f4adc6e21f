"""What every test runs under."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import lanes, shared
from tests.support.trl_trials import NO_TRAINING, ONE_THREAD, TRAINING_VARIABLE, build_tiny

pytest_plugins = ["tests.support.computing"]

# A slow or busy machine must not fail a property; what is tested is what holds, not how fast.
HOUSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("house", HOUSE, max_examples=40)
settings.register_profile("full", HOUSE)  # ``tests.support.properties.examples`` asks for it; `make test-full`
settings.load_profile("house")

# A script's background job begins with Ctrl-C ignored, and so would every process the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the hub

LONGEST = (
    "parity/test_parity_everywhere.py",
    "integration/test_real_failures.py",
    "integration/test_exported_training.py",
    "unit/trainer_child_tools/test_real_commands.py",
    "e2e/test_bad_input.py",
    "unit/study/test_study.py",
    "unit/store/test_store_contract.py",
)
"""Of the files, from the longest: begun last, one would keep a single worker busy when the others have nothing left."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers share their starter's
        config.add_cleanup(shared.begin())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out a file that has no test of the lane, unless it is named."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    named = {(config.invocation_params.dir / given.partition("::")[0]).resolve() for given in config.args}
    return None if collection_path in named or lanes.may_have(collection_path, config.option.markexpr) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which lane each is of; the longest files come first."""
    last = len(LONGEST)
    items.sort(key=lambda item: next((i for i, name in enumerate(LONGEST) if item.path.match(name)), last))
    for item in items:
        marks = lanes.all_of(mark.name for mark in item.iter_markers())
        if lanes.is_unit(item.path, marks):
            marks |= {"unit"}
        every, one = lanes.marks_in(item.path)
        if not every <= marks <= one:  # `make check` collects all
            raise pytest.UsageError(f"{item.nodeid} has the marks {set(marks)}: its file has to name them itself")
        for mark in marks:
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A unit test, or a fixture of it, that asks for the training interpreter fails: it would need ``make setup``."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("unit") is not None:
            patch.setenv(TRAINING_VARIABLE, NO_TRAINING)
        return (yield)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """``ONE_THREAD`` for what a file's tests start by the tuner's own runner or command."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ONE_THREAD.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with prompts, in a folder that the module's tests may add to."""
    return build_tiny(tmp_path_factory.mktemp("tiny"))
