"""Exports a configuration for ``swift rlhf`` or ``megatron rlhf``, with the command that trains. Pure.

Edits the user's own file or script in place. Writes a new YAML file with every argument if there is none, or if a
script has its arguments in a list or in another shell's script, or also starts its rollout server, which would then
run next to the export's.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from search_spaces.native import seam_values
from trainer.frameworks.common import exported
from trainer.frameworks.common.fields import words_of
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.config_text import CONFIG, changes, edited, is_script, launch_environment, whole_run
from trainer.frameworks.ms_swift.given import ALONE, Argument, Given, read_given
from trainer.frameworks.ms_swift.keys import variables
from trainer.frameworks.ms_swift.plugin import PLUGIN, TRAIN, Plugin, plugin_files, plugin_of
from trainer.frameworks.ms_swift.render import PORT, server_arguments, server_command, wants_server

_BEFORE = re.compile(rb"(?:\s|\\\n)*\Z")
_EXPORTED = (PLUGIN, TRAIN)

Piece = tuple[int, int, str]
"""First byte, byte after the last, and new text of a replacement."""


def edited_script(request: exported.ExportRequest, plugin: Plugin) -> str:
    """Returns the script, edited to run from the exported folder and to work in the user's own.

    Raises ValueError for a configuration that ms-swift cannot take, or a script without a readable run.
    """
    source = request.user_config.encode()
    found = read_given(request.user_config, exported.RUN)
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
    variables, more = _environment(request, found)
    pieces += variables
    for start, end, new in sorted(pieces, key=lambda piece: piece[:2], reverse=True):
        source = source[:start] + new.encode() + source[end:]
    place = [f"cd {shlex.quote(request.folder)} || exit 1"] if request.folder else []
    programs = shlex.quote(str(PurePosixPath(request.python).parent))  # with the measured interpreter's ``swift``
    path = [f'export PATH={programs}:"$PATH"'] if "/" in request.python else []
    return _begun(source.decode(), [exported.FIND_HERE, *path, *more, *place])


def _removed(source: bytes, there: Argument) -> Piece:
    start = there.spans[0][0]
    before = _BEFORE.search(source, 0, start)
    return (before.start() if before else start), there.spans[-1][1], ""


def _argument(key: str, value: Any) -> str:
    name, *words = words_of({key: value})
    return " ".join([name, *(f'"$here"/{word}' if word in _EXPORTED else shlex.quote(word) for word in words)])


def _environment(request: exported.ExportRequest, run: Given) -> tuple[list[Piece], list[str]]:
    """Returns (replacements in existing assignments, lines for new assignments)."""
    wished = launch_environment(request, run.environment)
    pieces, lines = [], []
    if exported.VISIBLE not in run.environment:
        alone = exported.visible(request, beside_server=False) if not wants_server(request.configuration) else {}
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
"""Shell line that continues a bash script under bash if ``sh``, which may be another shell, starts it."""


def _begun(text: str, lines: list[str]) -> str:
    """Inserts ``lines`` after the script's ``#!`` line; adds one for bash if there is none."""
    head, rest = text.split("\n", 1) if text.startswith("#!") and "\n" in text else ("#!/bin/bash", text)
    shell = [_BY_BASH] if _BASH.match(head) else []
    return "\n".join([head, *shell, *lines, rest])


def export(request: exported.ExportRequest) -> exported.Export:
    """Returns the files and the command.

    Raises ValueError for a configuration that ms-swift cannot take, or a user's file that cannot be edited in place.
    """
    script_given = bool(request.user_config) and is_script(request.user_config)
    own = read_given(request.user_config, exported.RUN if script_given else CONFIG) if request.user_config else None
    if own is not None and own.megatron is not megatron.chosen(request.configuration):
        theirs, ours = ("megatron", "swift") if own.megatron else ("swift", "megatron")
        raise ValueError(f"a run of `{theirs} rlhf` cannot be changed to one of `{ours} rlhf` in place")
    in_place = script_given and own is not None and own.in_place and not own.serves
    if request.nodes > 1 and not in_place:
        said = "only a script that starts their processes, and no rollout server, can be exported"
        raise ValueError(f"of {request.nodes} nodes {said}")
    if script_given and not in_place:  # a whole file is written beside the script
        request = replace(request, own_data=False)
    plugin, server = plugin_of(request), wants_server(request.configuration)
    files = plugin_files(plugin)
    whole = not in_place and (script_given or not request.user_config)
    if in_place:
        text = edited_script(request, plugin)
        made = exported.Command(("sh", "{here}/" + exported.RUN), request.folder, {})
        files[exported.RUN] = text
    else:
        text = whole_run(request, plugin) if whole else edited(request, plugin)
        made = _command(request, plugin)
        program = "megatron" if megatron.chosen(request.configuration) else "swift"
        remark = f"Arguments of {program} rlhf may follow; they win over {CONFIG}."
        files |= {CONFIG: text, exported.RUN: exported.run_script(request, made, remark, beside_server=server)}
    if server:
        files[exported.SERVER] = _server_script(request)
    named = seam_values(request.configuration, "ms_swift")
    seams = {name: value for name, value in named.items() if name in plugin.seams}
    diff = exported.difference("" if whole else request.user_config, text, exported.RUN if in_place else CONFIG)
    return exported.Export(files, made, seams, (), plugin.prompts, diff, f"{base_url(PORT)}/health/" if server else "")


def _command(request: exported.ExportRequest, plugin: Plugin) -> exported.Command:
    """Returns the training command, with absolute paths of the exported files if it runs in the user's folder.

    The file that the command names sets processes and variables.
    """
    environment = exported.visible(request, beside_server=wants_server(request.configuration))
    own, added = bool(request.user_config), list[str]()
    if own:
        environment["PYTHONPATH"] = "{here}"
        added += ["--dataset", "{here}/" + TRAIN] if plugin.prompts else []
        added += ["--external_plugins", *plugin.others, "{here}/" + PLUGIN] if plugin.needed else []
    entry = "swift.cli._megatron.main" if megatron.chosen(request.configuration) else "swift.cli.main"
    argv = (request.python, "-m", entry, "rlhf", "{here}/" + CONFIG, *added)
    return exported.Command(argv, request.folder if own else "{here}", environment)


def _server_script(request: exported.ExportRequest) -> str:
    """Returns the text of the rollout server's script. Raises ValueError if the GPUs cannot be split as configured."""
    arguments = server_arguments(
        request.configuration,
        request.model,
        PORT,
        longest=(request.max_prompt_length or 0) + request.max_completion_length,
        revision=request.revision,
        added=request.added,
        passthrough=request.passthrough,
    )
    argv = server_command(request.python, arguments)
    note = f"swift rollout takes another port if {PORT} was used within the last minute; run.sh then finds no server."
    return exported.server_script(request, argv, variables(request.configuration), note)
