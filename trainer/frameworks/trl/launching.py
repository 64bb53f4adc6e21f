"""The command that trains with an exported configuration, and the scripts that run it. Pure."""

from __future__ import annotations

import shlex

from search_spaces import yaml_edit
from trainer.frameworks.trl.exported import ACCELERATE, CONFIG, DEEPSPEED, LAUNCHER, PROMPTS, Command, Wanted
from trainer.frameworks.trl.keys import acting
from trainer.frameworks.trl.reward_module import Rewards
from trainer.frameworks.trl.server import (
    server_command,
    server_environment,
    split,
    trainer_environment,
    wants_server,
)
from trainer.frameworks.trl.variables import variables

PORT, GROUP_PORT = 8000, 51216
"""Of an exported rollout server, and of the group that weights are sent in: TRL's own."""


def by_torchrun(wanted: Wanted) -> bool:
    """Whether ``torchrun`` starts the processes, as it does a trial's.

    Sharding asks for it even with one process; of several on a CPU, ``accelerate launch`` would start one.
    """
    acts = acting(wanted.configuration)
    sharded = bool(acts.get("zero_stage")) or acts.get("fsdp") == "fsdp2"
    return sharded or (wanted.device == "cpu" and wanted.world_size > 1)


def on_cpu_with_deepspeed(wanted: Wanted) -> bool:
    """Then nothing may say ``use_cpu``, which turns DeepSpeed off."""
    return wanted.device == "cpu" and bool(acting(wanted.configuration).get("zero_stage"))


def accelerate_text(wanted: Wanted) -> str:
    """``accelerate launch``'s own file."""
    precision = str(wanted.configuration.get("precision", "fp32"))
    several = wanted.world_size > 1
    values = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if several else "NO",
        "mixed_precision": {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16"}.get(precision, "no"),
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": wanted.world_size,
        "use_cpu": wanted.device == "cpu",
        "main_training_function": "main",
        "enable_cpu_affinity": False,
        "debug": False,
    }
    return "".join(f"{key}: {yaml_edit.scalar(value)}\n" for key, value in values.items())


def command(wanted: Wanted, rewards: Rewards, launcher: bool) -> Command:
    """The words that train; ``launcher``: by ``LAUNCHER`` instead of TRL's script itself."""
    script = ("{here}/" + LAUNCHER,) if launcher else ("-m", "trl.scripts.grpo")
    own_folder = bool(wanted.user_config)
    environment = _environment(wanted)
    if own_folder and rewards.files:
        environment["PYTHONPATH"] = "{here}"
    return Command(
        argv=(wanted.python, *_started(wanted), *script, "--config", "{here}/" + CONFIG, *_files(wanted)),
        folder=rewards.folder or wanted.folder if own_folder else "{here}",
        environment=environment,
    )


def _started(wanted: Wanted) -> tuple[str, ...]:
    if by_torchrun(wanted):
        ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(wanted.world_size))
        return ("-m", "torch.distributed.run", *ranks, "--log-dir", "{here}/ranks")
    threads = ("--num_cpu_threads_per_process", str(wanted.threads))
    return ("-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE, *threads)


def _environment(wanted: Wanted) -> dict[str, str]:
    found = variables(wanted.configuration)
    if by_torchrun(wanted):
        found["OMP_NUM_THREADS"] = str(wanted.threads)  # it would leave a process one thread
    if wanted.device == "cpu" and wanted.world_size > 1:
        found["GLOO_SOCKET_IFNAME"] = "lo"
    if wants_server(wanted.configuration):
        found.update(trainer_environment(split(_gpus(wanted), wanted.configuration)[0]))
    elif wanted.device == "cuda" and wanted.world_size == 1:
        found["CUDA_VISIBLE_DEVICES"] = "0"  # of several, TRL would use all
    return found


def _gpus(wanted: Wanted) -> list[str]:
    """Those that train, then those of the rollout server."""
    return [str(i) for i in range(wanted.world_size + int(wanted.configuration.get("rollout_gpus", 0)))]


def _taken(wanted: Wanted, *, serving: bool) -> str:
    """The line that leaves one side its GPUs, of those the caller lets it see as of all.

    Both scripts are started with the same GPUs visible: the first train, the last are the server's.
    """
    gpus = _gpus(wanted)
    training = len(split(gpus, wanted.configuration)[0])
    places = f"{training + 1}-{len(gpus)}" if serving else f"1-{training}"
    visible = f'"${{CUDA_VISIBLE_DEVICES:-{",".join(gpus)}}}"'
    return f'CUDA_VISIBLE_DEVICES=$(printf "%s\\n" {visible} | cut -s -d, -f{places})'


def server_script(wanted: Wanted) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    longest = (wanted.max_prompt_length or 0) + wanted.max_completion_length
    argv = server_command(
        wanted.configuration,
        wanted.model,
        wanted.python,
        PORT,
        longest=longest,
        revision=wanted.revision,
        passthrough=wanted.passthrough,
    )
    lines = ["#!/bin/sh", f"# {comment(wanted.title)}", "# The rollout server; start it before run.sh."]
    environment = server_environment(split(_gpus(wanted), wanted.configuration)[1])
    del environment["HF_HUB_OFFLINE"]  # a study has fetched the model before; here it may have to be
    del environment["CUDA_VISIBLE_DEVICES"]
    lines += [_taken(wanted, serving=True), "export CUDA_VISIBLE_DEVICES"]
    lines += [f"{name}={shlex.quote(value)}; export {name}" for name, value in environment.items()]
    return "\n".join([*lines, "exec " + shlex.join(argv) + ' "$@"']) + "\n"


def _files(wanted: Wanted) -> tuple[str, ...]:
    """Exported files the configuration names, by their whole path where the command runs in the user's folder."""
    found: list[str] = []
    if wanted.user_config and not wanted.own_data:
        found += ["--dataset_name", "{here}/" + PROMPTS]
    if wanted.user_config and acting(wanted.configuration).get("zero_stage"):
        found += ["--deepspeed", "{here}/" + DEEPSPEED]
    return tuple(found)


def script(wanted: Wanted, command: Command) -> str:
    """``RUN``: the same command from wherever it is started."""
    lines = [
        "#!/bin/sh",
        f"# {comment(wanted.title)}",
        f"# Options of TRL's script may follow; they win over {CONFIG}.",
        'here=$(cd "$(dirname "$0")" && pwd) || exit 1',
    ]
    for name, value in command.environment.items():
        if name == "PYTHONPATH":
            lines.append(f"PYTHONPATH={_quoted(value)}${{PYTHONPATH:+:$PYTHONPATH}}")
        elif name == "CUDA_VISIBLE_DEVICES" and wants_server(wanted.configuration):
            lines.append(_taken(wanted, serving=False))
        else:
            lines.append(f': "${{{name}:={value}}}"')
        lines.append(f"export {name}")
    if command.folder:
        lines.append(f"cd {_quoted(command.folder)} || exit 1")
    lines.append("exec " + " ".join(_quoted(word) for word in command.argv) + ' "$@"')
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """A word for the shell, ``{here}`` being the script's own folder."""
    before, sign, after = word.partition("{here}")
    if not sign:
        return shlex.quote(word)
    return (shlex.quote(before) if before else "") + '"$here"' + (shlex.quote(after) if after else "")


def comment(text: str) -> str:
    """``text`` as it can stand behind a ``#``."""
    return "".join(c if c.isprintable() else "?" for c in text)
