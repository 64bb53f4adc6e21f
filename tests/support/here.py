"""A command line in this process: in one of its own most of the time goes to imports."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.cli.failures import exit_code_of
from tests.support import hostile


def autotune(
    words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``autotune WORDS`` in ``folder``; without an ``environment`` in the present one."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    kept, before = dict(os.environ), Path.cwd()
    os.environ.clear()
    os.environ.update(kept if environment is None else environment)
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code_of(lambda: hostile.program()(list(words), prog_name="autotune"))
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)
    return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined, no-any-return]
