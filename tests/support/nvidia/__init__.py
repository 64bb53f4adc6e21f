"""The driver's two libraries, built of the C files here, so that the real bindings run without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.shared import made_once

HERE = Path(__file__).parent
LIBRARIES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}


def libraries() -> Path:
    """The folder they lie in. Skips the test where no C compiler is."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler here to build the driver's libraries with")

    def build(folder: Path) -> None:
        for source, name in LIBRARIES.items():
            command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{name}"]
            subprocess.run([*command, "-o", str(folder / name), str(HERE / source)], check=True)

    return made_once("nvidia", build)


def environment(base: Mapping[str, str] = os.environ, **driver: object) -> Mapping[str, str]:
    """Variables ``base`` for a process that has the libraries; ``driver`` describes the GPUs (``nvml.c``)."""
    said = {f"NVML_{name.upper()}": str(value) for name, value in driver.items()}
    return {**base, "LD_LIBRARY_PATH": str(libraries()), **said}
