"""The command that trains with an exported recipe, and the scripts that run it. Pure."""

from __future__ import annotations

from trainer.frameworks.common import scripts
from trainer.frameworks.common.accelerate_file import FILE_KEY
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, LAUNCHER, PROMPTS, Command
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.variables import variables
from trainer.frameworks.open_r1.accelerate_config import needs_file
from trainer.frameworks.open_r1.exported import RECIPE, SCRIPT, Wanted
from trainer.frameworks.open_r1.keys import wants_server
from trainer.frameworks.open_r1.server import server_command


def by_torchrun(wanted: Wanted) -> bool:
    """Whether torchrun starts the processes: on a CPU ``accelerate launch`` would start only one of several."""
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
    return {**found, **scripts.visible(wanted, served=wants_server(wanted.configuration))}


def script(wanted: Wanted, made: Command) -> str:
    """``RUN``."""
    remark = f"Options of Open-R1's script may follow; they win over {RECIPE}."
    return scripts.run_script(wanted, made, remark, served=wants_server(wanted.configuration))


def server_script(wanted: Wanted) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    longest, revision = wanted.longest, wanted.revision
    argv = server_command(wanted.configuration, wanted.model, wanted.python, longest=longest, revision=revision)
    return scripts.server_script(wanted, argv, {})
