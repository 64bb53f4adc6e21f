"""What every test runs under."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests import shared

# A slow or busy machine must not fail a property; what is tested is what holds, not how fast.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# A script's background job begins with Ctrl-C ignored, and so would every process the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = (
    "parity/test_parity_everywhere.py",
    "integration/test_real_failures.py",
    "integration/test_exported_training.py",
    "unit/trainer_child_tools/test_real_commands.py",
)
"""Of the files, from the longest: begun last, one would keep a single worker busy when the others have nothing left."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers share their starter's
        config.add_cleanup(shared.begin())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A GPU, and the memory of a trial of another framework, are there once; the longest files come first."""
    last = len(LONGEST)
    items.sort(key=lambda item: next((i for i, name in enumerate(LONGEST) if item.path.match(name)), last))
    for item in items:
        if item.get_closest_marker("gpu") is not None or item.get_closest_marker("frameworks") is not None:
            item.add_marker(pytest.mark.alone)
