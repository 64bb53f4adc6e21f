"""The command that trains with an exported recipe, and the scripts that run it. Pure."""

from __future__ import annotations

import shlex

from trainer.frameworks.open_r1.accelerate_config import DEEPSPEED, FILE_KEY, needs_file
from trainer.frameworks.open_r1.exported import ACCELERATE, LAUNCHER, PROMPTS, RECIPE, SCRIPT, Wanted
from trainer.frameworks.open_r1.rewards import Rewards
from trainer.frameworks.open_r1.server import server_command, split, wants_server
from trainer.frameworks.trl.exported import Command
from trainer.frameworks.trl.launching import comment
from trainer.frameworks.trl.variables import variables


def by_torchrun(wanted: Wanted) -> bool:
    """Of several processes on a CPU ``accelerate launch`` would start one."""
    return wanted.device == "cpu" and wanted.world_size > 1


def command(wanted: Wanted, rewards: Rewards) -> Command:
    """The words that train."""
    own_folder = bool(wanted.user_config)
    script = f"{wanted.checkout}/{SCRIPT}"
    launched = ("{here}/" + LAUNCHER, script) if rewards.files else (script,)
    data = ("--dataset_name", "{here}/" + PROMPTS) if own_folder and not wanted.own_data else ()
    return Command(
        argv=(wanted.python, *_started(wanted), *launched, "--config", "{here}/" + RECIPE, *data),
        folder=rewards.folder or wanted.folder if own_folder else "{here}",
        environment=_environment(wanted, rewards),
    )


def _started(wanted: Wanted) -> tuple[str, ...]:
    if by_torchrun(wanted):
        ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(wanted.world_size))
        return ("-m", "torch.distributed.run", *ranks)
    words = ["-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE]
    if needs_file(wanted.configuration):
        words += [f"--{FILE_KEY}", "{here}/" + DEEPSPEED]  # the file's own path would be looked up from the folder
    return (*words, "--num_cpu_threads_per_process", str(wanted.threads))


def _environment(wanted: Wanted, rewards: Rewards) -> dict[str, str]:
    found = {"PYTHONPATH": f"{wanted.checkout}/src", **variables(wanted.configuration)}
    if rewards.files:
        found["PYTHONPATH"] = "{here}:" + found["PYTHONPATH"]
    if by_torchrun(wanted):
        found.update(OMP_NUM_THREADS=str(wanted.threads), GLOO_SOCKET_IFNAME="lo")
    if wants_server(wanted.configuration):
        found["CUDA_VISIBLE_DEVICES"] = ",".join(split(_gpus(wanted), wanted.configuration)[0])
    elif wanted.device == "cuda" and wanted.world_size == 1:
        found["CUDA_VISIBLE_DEVICES"] = "0"  # of several, TRL would use all
    return found


def _gpus(wanted: Wanted) -> list[str]:
    """Those that train, then those of the rollout server."""
    return [str(i) for i in range(wanted.world_size + int(wanted.configuration.get("rollout_gpus", 0)))]


def script(wanted: Wanted, made: Command) -> str:
    """The script that trains, from wherever it is started."""
    lines = [
        "#!/bin/sh",
        f"# {comment(wanted.title)}",
        f"# Options of Open-R1's script may follow; they win over {RECIPE}.",
        'here=$(cd "$(dirname "$0")" && pwd) || exit 1',
    ]
    for name, value in made.environment.items():
        if name == "PYTHONPATH":
            lines.append(f"PYTHONPATH={quoted(value)}${{PYTHONPATH:+:$PYTHONPATH}}")
        elif name == "CUDA_VISIBLE_DEVICES" and wants_server(wanted.configuration):
            lines.append(_taken(wanted, serving=False))
        else:
            lines.append(f': "${{{name}:={value}}}"')
        lines.append(f"export {name}")
    if made.folder:
        lines.append(f"cd {quoted(made.folder)} || exit 1")
    lines.append("exec " + " ".join(quoted(word) for word in made.argv) + ' "$@"')
    return "\n".join(lines) + "\n"


def server_script(wanted: Wanted) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    prompt = wanted.max_prompt_length
    longest = None if prompt is None else prompt + wanted.max_completion_length
    argv = server_command(wanted.configuration, wanted.model, wanted.python, longest=longest, revision=wanted.revision)
    split(_gpus(wanted), wanted.configuration)
    lines = ["#!/bin/sh", f"# {comment(wanted.title)}", "# The rollout server; start it before run.sh."]
    lines += [_taken(wanted, serving=True), "export CUDA_VISIBLE_DEVICES"]
    return "\n".join([*lines, "exec " + shlex.join(argv) + ' "$@"']) + "\n"


def _taken(wanted: Wanted, *, serving: bool) -> str:
    """The line that leaves one side its GPUs, of those the caller lets it see as of all: the first train."""
    gpus = _gpus(wanted)
    training = len(split(gpus, wanted.configuration)[0])
    places = f"{training + 1}-{len(gpus)}" if serving else f"1-{training}"
    visible = f'"${{CUDA_VISIBLE_DEVICES:-{",".join(gpus)}}}"'
    return f'CUDA_VISIBLE_DEVICES=$(printf "%s\\n" {visible} | cut -s -d, -f{places})'


def quoted(word: str) -> str:
    """A word for the shell, ``{here}`` being the script's own folder."""
    before, sign, after = word.partition("{here}")
    if not sign:
        return shlex.quote(word)
    return (shlex.quote(before) if before else "") + '"$here"' + (shlex.quote(after) if after else "")
