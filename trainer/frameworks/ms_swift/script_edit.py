"""Edits the arguments in a user's own shell script: words are replaced, added and removed, nothing else. Pure."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Any

from trainer.frameworks.common.exported import RUN, ExportRequest
from trainer.frameworks.common.fields import words_of
from trainer.frameworks.common.scripts import FIND_HERE, VISIBLE, visible
from trainer.frameworks.ms_swift.config_text import changes, launch_environment
from trainer.frameworks.ms_swift.given import ALONE, Argument, Given, read_given
from trainer.frameworks.ms_swift.plugin import PLUGIN, TRAIN, Plugin
from trainer.frameworks.ms_swift.server import wants_server

_BEFORE = re.compile(rb"(?:\s|\\\n)*\Z")
_EXPORTED = (PLUGIN, TRAIN)

Piece = tuple[int, int, str]
"""First byte, byte behind, and new text of a replacement."""


def edited_script(request: ExportRequest, plugin: Plugin) -> str:
    """Returns the script, edited to run from the exported folder and to work in the user's own.

    Raises ValueError for a configuration that ms-swift cannot take, or a script without a readable run.
    """
    source = request.user_config.encode()
    found = read_given(request.user_config, RUN)
    made = changes(request, plugin, found.arguments)
    pieces, added = [], []
    for key, value in made.items():
        there = found.arguments.get(key)
        if there is not None and value is None:
            pieces.append(_removed(source, there))
        elif there is not None and list(there.words) != words_of({key: value})[1:]:
            pieces.append((there.spans[0][0], there.spans[-1][1], _argument(key, value)))
        elif there is None and value is not None:
            added.append(_argument(key, value))
    added += [] if found.forwards else ['"$@"']  # what a caller adds wins, as it does over a file
    pieces += [(found.end, found.end, "".join(f" \\\n    {words}" for words in added))]
    alone = (found.launch.options or {}).get(ALONE)
    if alone is not None and request.world_size > 1:  # ms-swift's own entry starts as many as the variables say
        pieces.append((alone.start, alone.end, re.sub(r"rlhf(\.py)?$", r"main\1 rlhf", alone.text)))
    variables, exported = _environment(request, found)
    pieces += variables
    for start, end, new in sorted(pieces, key=lambda piece: piece[:2], reverse=True):
        source = source[:start] + new.encode() + source[end:]
    place = [f"cd {shlex.quote(request.folder)} || exit 1"] if request.folder else []
    return _begun(source.decode(), [FIND_HERE, *filter(None, [_path_line(request)]), *exported, *place])


def _path_line(request: ExportRequest) -> str:
    """Returns the line that puts the measured interpreter's ``swift`` first in PATH; empty without an interpreter."""
    folder = shlex.quote(str(PurePosixPath(request.python).parent))
    return f'export PATH={folder}:"$PATH"' if "/" in request.python else ""


def _removed(source: bytes, there: Argument) -> Piece:
    start = there.spans[0][0]
    before = _BEFORE.search(source, 0, start)
    return (before.start() if before else start), there.spans[-1][1], ""


def _argument(key: str, value: Any) -> str:
    name, *words = words_of({key: value})
    return " ".join([name, *(f'"$here"/{word}' if word in _EXPORTED else shlex.quote(word) for word in words)])


def _environment(request: ExportRequest, run: Given) -> tuple[list[Piece], list[str]]:
    """Returns (changes of existing assignments, lines for new ones)."""
    wished = launch_environment(request, run.environment)
    pieces, lines = [], []
    if VISIBLE not in run.environment:
        alone = visible(request, beside_server=False) if not wants_server(request.configuration) else {}
        lines += [f'export {name}="${{{name}:-{value}}}"' for name, value in alone.items()]
    for name, value in wished.items():
        there = run.environment.get(name)
        if there is None:
            lines.append(f"export {name}={shlex.quote(value)}")
        elif there.words != (value,):
            pieces.append((*there.spans[0], f"{name}={shlex.quote(value)}"))
    return pieces, lines


_BASH = re.compile(r"#!.*\bbash\b")
_BY_BASH = '[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"'
"""Continues a bash script under bash if ``sh`` starts it, which may be another shell."""


def _begun(text: str, lines: list[str]) -> str:
    """Inserts ``lines`` after the script's ``#!`` line; adds one for bash if there is none."""
    head, rest = text.split("\n", 1) if text.startswith("#!") and "\n" in text else ("#!/bin/bash", text)
    shell = [_BY_BASH] if _BASH.match(head) else []
    return "\n".join([head, *shell, *lines, rest])
