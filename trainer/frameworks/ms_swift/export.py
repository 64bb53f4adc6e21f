"""Exports a configuration for ``swift rlhf`` or ``megatron rlhf``, with the command that trains. Pure.

Edits the user's own file or script in place. Without one, writes a YAML file with every argument; likewise for a script
whose arguments stand in a list or in the script of another shell, and for a script that also starts its rollout server,
which would run next to the server of the export.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.native import seam_values
from trainer.frameworks.common import scripts
from trainer.frameworks.common.exported import RUN, SERVER, Command, Export, ExportRequest
from trainer.frameworks.common.scripts import difference
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.config_text import CONFIG, edited, is_script, whole_run
from trainer.frameworks.ms_swift.given import read_given
from trainer.frameworks.ms_swift.keys import variables
from trainer.frameworks.ms_swift.plugin import PLUGIN, TRAIN, Plugin, plugin_files, plugin_of
from trainer.frameworks.ms_swift.script_edit import edited_script
from trainer.frameworks.ms_swift.server import PORT, server_arguments, server_command, wants_server


def export(request: ExportRequest) -> Export:
    """Returns the files and the command.

    Raises ValueError for a configuration that ms-swift cannot take, or a user's file that cannot be edited in place.
    """
    script_given = bool(request.user_config) and is_script(request.user_config)
    own = read_given(request.user_config, RUN if script_given else CONFIG) if request.user_config else None
    if own is not None and own.megatron is not megatron.chosen(request.configuration):
        theirs, ours = ("megatron", "swift") if own.megatron else ("swift", "megatron")
        raise ValueError(f"a run of `{theirs} rlhf` cannot be changed to one of `{ours} rlhf` in place")
    in_place = script_given and own is not None and own.in_place and not own.serves
    if request.nodes > 1 and not in_place:
        said = "only a script that starts their processes, and no rollout server, can be exported"
        raise ValueError(f"of {request.nodes} nodes {said}")
    if script_given and not in_place:  # a whole file is written beside the script
        request = replace(request, own_data=False)
    plugin = plugin_of(request)
    files = dict(plugin_files(plugin))
    if in_place:
        text = edited_script(request, plugin)
        made = Command(("sh", "{here}/" + RUN), request.folder, {})
        files[RUN] = text
    else:
        whole = script_given or not request.user_config
        text = whole_run(request, plugin) if whole else edited(request, plugin)
        made = _command(request, plugin)
        files.update({CONFIG: text, RUN: _script(request, made)})
    server = wants_server(request.configuration)
    if server:
        files[SERVER] = _server_script(request)
    named = seam_values(request.configuration, "ms_swift")
    seams = {name: value for name, value in named.items() if name in plugin.seams}
    diff = difference("" if script_given and not in_place else request.user_config, text, RUN if in_place else CONFIG)
    return Export(files, made, seams, (), plugin.prompts, diff, f"{base_url(PORT)}/health/" if server else "")


def _command(request: ExportRequest, plugin: Plugin) -> Command:
    """Returns the training command; processes and variables are in the file that it names."""
    environment = scripts.visible(request, beside_server=wants_server(request.configuration))
    own = bool(request.user_config)
    if own:
        environment["PYTHONPATH"] = "{here}"
    entry = "swift.cli._megatron.main" if megatron.chosen(request.configuration) else "swift.cli.main"
    return Command(
        argv=(request.python, "-m", entry, "rlhf", "{here}/" + CONFIG, *_files(plugin, own)),
        folder=request.folder if own else "{here}",
        environment=environment,
    )


def _files(plugin: Plugin, own: bool) -> tuple[str, ...]:
    """Returns the words for exported files, with whole paths if the command runs in the user's folder."""
    if not own:
        return ()
    found = ("--dataset", "{here}/" + TRAIN) if plugin.prompts else ()
    plugins = (*plugin.others, "{here}/" + PLUGIN)
    return (*found, "--external_plugins", *plugins) if plugin.needed else found


def _script(request: ExportRequest, command: Command) -> str:
    """Returns the text of the script ``RUN``."""
    program = "megatron" if megatron.chosen(request.configuration) else "swift"
    remark = f"Arguments of {program} rlhf may follow; they win over {CONFIG}."
    return scripts.run_script(request, command, remark, beside_server=wants_server(request.configuration))


def _server_script(request: ExportRequest) -> str:
    """Returns the rollout server's script. Raises ValueError if the GPUs cannot be split as configured."""
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
    return scripts.server_script(request, argv, variables(request.configuration), note)
