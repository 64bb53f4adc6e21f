"""Tests that need a CUDA GPU are skipped where there is none, and say so; the others run on a CPU too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.machine import gpu_choice
from tests.gpu.device import GPUS, WHY_NOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if GPUS:
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


@pytest.fixture(scope="session", autouse=True)
def _one_gpu() -> Iterator[None]:
    """A trial of one process would spread itself over every GPU it sees."""
    with pytest.MonkeyPatch.context() as patch:
        if len(GPUS) > 1:
            for name, value in gpu_choice.environment(GPUS[:1]).items():
                patch.setenv(name, value)
        yield
