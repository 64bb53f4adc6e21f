"""A configuration as what ``swift rlhf`` or ``megatron rlhf`` trains from, and the command that does. Pure.

The user's own file or script is edited in place where there is one; else a YAML file with every argument is written, as
for a script whose arguments stand in a list or in what another shell is given, or that starts its rollout server too:
it would run beside the server of the export.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.native import seam_values
from trainer.frameworks.common.exported import RUN, SERVER, Command, Export
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.texts import difference
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.config_text import edited, is_script, written
from trainer.frameworks.ms_swift.exported import CONFIG, SwiftExportRequest
from trainer.frameworks.ms_swift.given import given
from trainer.frameworks.ms_swift.launching import command, script, server_script
from trainer.frameworks.ms_swift.plugin import plugin_files, plugin_of
from trainer.frameworks.ms_swift.script_edit import edited_script
from trainer.frameworks.ms_swift.server import PORT, wants_server


def export(request: SwiftExportRequest) -> Export:
    """The files and the command.

    Raises:
        ValueError: ms-swift cannot be given the configuration, or the user's own file cannot be changed in place.
    """
    script_given = bool(request.user_config) and is_script(request.user_config)
    own = given(request.user_config, RUN if script_given else CONFIG) if request.user_config else None
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
        text = written(request, plugin) if whole else edited(request, plugin)
        made = command(request, plugin)
        files.update({CONFIG: text, RUN: script(request, made)})
    server = wants_server(request.configuration)
    if server:
        files[SERVER] = server_script(request)
    named = seam_values(request.configuration, "ms_swift")
    seams = {name: value for name, value in named.items() if name in plugin.seams}
    diff = difference("" if script_given and not in_place else request.user_config, text, RUN if in_place else CONFIG)
    return Export(files, made, seams, (), plugin.prompts, diff, f"{base_url(PORT)}/health/" if server else "")
