"""Runs the steps of `make setup` in order: driver, tool, training stack, bundled model.

Standard library only: it runs in the system's Python.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from autotune.machine import hardware
from tools import bundled_model, environments
from tools.environments import SetupError, say

MEMORY_NEEDED = 4 << 30
"""Bytes: a trial of the bundled model at the smallest size takes 2 to 3 GiB, the tuner half of one."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the set-up; returns 0 on success, else 1 with one sentence on stderr."""
    options = _parse(arguments)
    try:
        set_up(options)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    return 0


def set_up(options: argparse.Namespace) -> None:
    """Makes the missing parts.

    Raises SetupError for a part that cannot be made.
    """
    python = _chosen_python(options.python)
    wants_stack = not options.tool_only and python is None
    if options.model is not None and not options.tool_only:
        _check_memory(hardware.usable_memory())
    stack = _stack(options.cpu) if wants_stack else None
    environments.make(options.tool.absolute(), environments.TOOL)
    for name, kind in environments.OTHERS.items():
        if (folder := getattr(options, name.replace("-", "_"))) is not None:
            environments.make(folder.absolute(), kind, options.torch_index)
    if stack is not None:
        environments.make(options.training.absolute(), environments.TRAINING[stack], options.torch_index)
    if options.model is not None and not options.tool_only:
        python = python or environments.python_of(options.training.absolute())
        bundled_model.provide(python, options.model.absolute())


def _check_memory(usable: int | None) -> None:
    """Raises SetupError if the ``usable`` bytes are too few for a trial of the bundled model; ``None`` is unknown."""
    if usable is not None and usable < MEMORY_NEEDED:
        raise SetupError(
            f"trials of the bundled model need {MEMORY_NEEDED / 2**30:.0f} GiB of memory, and {usable / 2**30:.1f} GiB "
            "can be used here; a container gets more by docker run --memory=6g"
        )


def _chosen_python(python: str | None) -> Path | None:
    """Returns the user's interpreter, by path or by a name on PATH; a link into an environment stays a link."""
    if python is None:
        return None
    found = shutil.which(python)
    if found is None:
        raise SetupError(f"PYTHON={python} is no interpreter that can be run")
    return Path(found).absolute()


def _stack(cpu: bool) -> environments.Stack:
    if cpu:
        return environments.Stack.CPU
    stack, reason = environments.choose(environments.read_driver())
    say(reason)
    return stack


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.setup", description="Make what a checkout needs to run.")
    parser.add_argument("--tool", type=Path, default=Path(".venv"), help="environment of the tool")
    parser.add_argument("--training", type=Path, default=Path(".venv-train"), help="environment of the training stack")
    for name, kind in environments.OTHERS.items():
        parser.add_argument(f"--{name}", type=Path, help=f"environment of {kind.name}; left out, none is made")
    parser.add_argument("--python", help="your own training environment; none is made then")
    parser.add_argument("--model", type=Path, help="folder for the bundled model; left out, none is made")
    parser.add_argument("--cpu", action="store_true", help="the CPU stack even where there is a GPU")
    parser.add_argument("--torch-index", help="package index to take torch from")
    parser.add_argument("--tool-only", action="store_true", help="only the environment of the tool")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
