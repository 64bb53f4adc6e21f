"""The script that starts verl, one override a line. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trainer.frameworks.trl.launching import comment
from trainer.frameworks.verl.exported import Command

HERE = "{here}"
"""In a word: the folder of the script."""
MODULE = "verl.trainer.main_ppo"


def script(title: str, command: Command, *remarks: str) -> str:
    """The command from wherever it is started; what the caller's environment sets already, stays."""
    lines = [
        "#!/bin/sh",
        *(f"# {comment(line)}" for line in (title, *remarks)),
        "# Overrides may follow; they win over those here.",
        'here=$(cd "$(dirname "$0")" && pwd) || exit 1',
    ]
    for name, value in command.environment.items():
        lines.append(f'[ -n "${{{name}+set}}" ] || {name}={worded(value)}')
        lines.append(f"export {name}")
    lines.append(f"cd {worded(command.folder)} || exit 1")
    return "\n".join([*lines, _joined(command.argv)]) + "\n"


def _joined(argv: Sequence[str]) -> str:
    place = argv.index(MODULE) + 1
    start = "exec " + " ".join(worded(word) for word in argv[:place])
    return " \\\n  ".join([start, *(worded(word) for word in argv[place:]), '"$@"'])


def worded(word: str) -> str:
    """``word`` for the shell."""
    before, sign, after = word.partition(HERE)
    if not sign:
        return shlex.quote(word)
    return (shlex.quote(before) if before else "") + '"$here"' + (shlex.quote(after) if after else "")
