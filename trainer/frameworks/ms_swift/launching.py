"""The command that trains with an exported run, and the scripts that run it. Pure."""

from __future__ import annotations

import shlex

from trainer.frameworks.ms_swift.environment import variables
from trainer.frameworks.ms_swift.exported import CONFIG, PLUGIN, TRAIN, Command, Wanted
from trainer.frameworks.ms_swift.plugin import Plugin
from trainer.frameworks.ms_swift.server import PORT, server_arguments, server_command, split, wants_server
from trainer.frameworks.trl.launching import comment


def command(wanted: Wanted, plugin: Plugin) -> Command:
    """The words that train; processes and variables are in the file they name."""
    environment: dict[str, str] = {}
    if wants_server(wanted.configuration):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(split(_gpus(wanted), wanted.configuration)[0])
    elif wanted.device == "cuda" and wanted.world_size == 1:
        environment["CUDA_VISIBLE_DEVICES"] = "0"  # of several, one process would spread the model over all
    own = bool(wanted.user_config)
    if own:
        environment["PYTHONPATH"] = "{here}"
    return Command(
        argv=(wanted.python, "-m", "swift.cli.main", "rlhf", "{here}/" + CONFIG, *_files(plugin, own)),
        folder=wanted.folder if own else "{here}",
        environment=environment,
    )


def _files(plugin: Plugin, own: bool) -> tuple[str, ...]:
    """Exported files the run names, by their whole path where the command runs in the user's folder."""
    if not own:
        return ()
    found = ("--dataset", "{here}/" + TRAIN) if plugin.prompts else ()
    plugins = (*plugin.others, "{here}/" + PLUGIN)
    return (*found, "--external_plugins", *plugins) if plugin.needed else found


def _gpus(wanted: Wanted) -> list[str]:
    """Those that train, then those of the rollout server."""
    return [str(i) for i in range(wanted.world_size + int(wanted.configuration.get("rollout_gpus", 0)))]


def taken(wanted: Wanted, *, serving: bool) -> str:
    """The line that leaves one side its GPUs, of those the caller lets it see as of all.

    Both scripts are started with the same GPUs visible: the first train, the last are the server's.
    """
    gpus = _gpus(wanted)
    training = len(split(gpus, wanted.configuration)[0])
    places = f"{training + 1}-{len(gpus)}" if serving else f"1-{training}"
    visible = f'"${{CUDA_VISIBLE_DEVICES:-{",".join(gpus)}}}"'
    return f'CUDA_VISIBLE_DEVICES=$(printf "%s\\n" {visible} | cut -s -d, -f{places})'


def script(wanted: Wanted, made: Command) -> str:
    """``RUN``: the same command from wherever it is started."""
    lines = [
        "#!/bin/sh",
        f"# {comment(wanted.title)}",
        f"# Arguments of swift rlhf may follow; they win over {CONFIG}.",
        'here=$(cd "$(dirname "$0")" && pwd) || exit 1',
    ]
    for name, value in made.environment.items():
        if name == "PYTHONPATH":
            lines.append('PYTHONPATH="$here"${PYTHONPATH:+:$PYTHONPATH}')
        elif wants_server(wanted.configuration):
            lines.append(taken(wanted, serving=False))
        else:
            lines.append(f': "${{{name}:={value}}}"')
        lines.append(f"export {name}")
    lines.append(f"cd {_quoted(made.folder)} || exit 1")
    lines.append("exec " + " ".join(_quoted(word) for word in made.argv) + ' "$@"')
    return "\n".join(lines) + "\n"


def server_script(wanted: Wanted) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    arguments = server_arguments(
        wanted.configuration,
        wanted.model,
        PORT,
        longest=(wanted.max_prompt_length or 0) + wanted.max_completion_length,
        revision=wanted.revision,
        added=wanted.added,
    )
    lines = ["#!/bin/sh", f"# {comment(wanted.title)}", "# The rollout server; start it before run.sh."]
    lines += [taken(wanted, serving=True), "export CUDA_VISIBLE_DEVICES"]
    for name, value in variables(wanted.configuration).items():
        lines.append(f"{name}={shlex.quote(value)}; export {name}")
    lines.append("exec " + shlex.join(server_command(wanted.python, arguments)) + ' "$@"')
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """A word for the shell, ``{here}`` being the script's own folder."""
    before, sign, after = word.partition("{here}")
    if not sign:
        return shlex.quote(word)
    return (shlex.quote(before) if before else "") + '"$here"' + (shlex.quote(after) if after else "")
