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


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers share their starter's
        config.add_cleanup(shared.begin())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A GPU, and the memory of a trial of another framework, are there once."""
    for item in items:
        if item.get_closest_marker("gpu") is not None or item.get_closest_marker("frameworks") is not None:
            item.add_marker(pytest.mark.alone)
