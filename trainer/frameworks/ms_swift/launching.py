"""The command that trains with an exported run, and the scripts that run it. Pure."""

from __future__ import annotations

from trainer.frameworks.common import scripts
from trainer.frameworks.common.exported import Command
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.environment import variables
from trainer.frameworks.ms_swift.exported import CONFIG, PLUGIN, TRAIN, SwiftExportRequest
from trainer.frameworks.ms_swift.plugin import Plugin
from trainer.frameworks.ms_swift.server import PORT, server_arguments, server_command, wants_server


def command(request: SwiftExportRequest, plugin: Plugin) -> Command:
    """The words that train; processes and variables are in the file they name."""
    environment = scripts.visible(request, served=wants_server(request.configuration))
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
    """Exported files the run names, by their whole path where the command runs in the user's folder."""
    if not own:
        return ()
    found = ("--dataset", "{here}/" + TRAIN) if plugin.prompts else ()
    plugins = (*plugin.others, "{here}/" + PLUGIN)
    return (*found, "--external_plugins", *plugins) if plugin.needed else found


def script(request: SwiftExportRequest, made: Command) -> str:
    """``RUN``."""
    program = "megatron" if megatron.chosen(request.configuration) else "swift"
    remark = f"Arguments of {program} rlhf may follow; they win over {CONFIG}."
    return scripts.run_script(request, made, remark, served=wants_server(request.configuration))


def server_script(request: SwiftExportRequest) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
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
