"""The script that starts verl, one override a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.frameworks.common.exported import Command
from trainer.frameworks.common.scripts import FIND_HERE, comment, quoted

MODULE = "verl.trainer.main_ppo"


def script(title: str, command: Command, *remarks: str) -> str:
    """The command from wherever it is started; what the caller's environment sets already, stays."""
    lines = [
        "#!/bin/sh",
        *(f"# {comment(line)}" for line in (title, *remarks)),
        "# Overrides may follow; they win over those here.",
        FIND_HERE,
    ]
    for name, value in command.environment.items():
        lines.append(f'[ -n "${{{name}+set}}" ] || {name}={quoted(value)}')
        lines.append(f"export {name}")
    lines.append(f"cd {quoted(command.folder)} || exit 1")
    return "\n".join([*lines, _joined(command.argv)]) + "\n"


def _joined(argv: Sequence[str]) -> str:
    place = argv.index(MODULE) + 1
    start = "exec " + " ".join(quoted(word) for word in argv[:place])
    return " \\\n  ".join([start, *(quoted(word) for word in argv[place:]), '"$@"'])
