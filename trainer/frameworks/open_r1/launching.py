"""The command that trains with an exported recipe, and the scripts that run it. Pure."""

from __future__ import annotations

from trainer.frameworks.common import scripts
from trainer.frameworks.common.accelerate_file import FILE_KEY
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, LAUNCHER, PROMPTS, Command
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.variables import variables
from trainer.frameworks.open_r1.accelerate_config import needs_file
from trainer.frameworks.open_r1.exported import RECIPE, SCRIPT, OpenR1ExportRequest
from trainer.frameworks.open_r1.keys import wants_server
from trainer.frameworks.open_r1.server import server_command


def by_torchrun(request: OpenR1ExportRequest) -> bool:
    """Whether torchrun starts the processes: on a CPU ``accelerate launch`` would start only one of several."""
    return request.device == "cpu" and request.world_size > 1


def command(request: OpenR1ExportRequest, rewards: Rewards) -> Command:
    """The words that train."""
    own_folder = bool(request.user_config)
    script = f"{request.checkout}/{SCRIPT}"
    launched = ("{here}/" + LAUNCHER, script) if rewards.files else (script,)
    data = ("--dataset_name", "{here}/" + PROMPTS) if own_folder and not request.own_data else ()
    return Command(
        argv=(request.python, *_started(request), *launched, "--config", "{here}/" + RECIPE, *data),
        folder=rewards.folder or request.folder if own_folder else "{here}",
        environment=_environment(request, rewards),
    )


def _started(request: OpenR1ExportRequest) -> tuple[str, ...]:
    if by_torchrun(request):
        ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(request.world_size))
        return ("-m", "torch.distributed.run", *ranks)
    words = ["-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE]
    if needs_file(request.configuration):
        words += [f"--{FILE_KEY}", "{here}/" + DEEPSPEED]  # the file's own path would be looked up from the folder
    return (*words, "--num_cpu_threads_per_process", str(request.threads))


def _environment(request: OpenR1ExportRequest, rewards: Rewards) -> dict[str, str]:
    found = {"PYTHONPATH": f"{request.checkout}/src", **variables(request.configuration)}
    if rewards.files:
        found["PYTHONPATH"] = "{here}:" + found["PYTHONPATH"]
    if by_torchrun(request):
        found.update(OMP_NUM_THREADS=str(request.threads), GLOO_SOCKET_IFNAME="lo")
    return {**found, **scripts.visible(request, served=wants_server(request.configuration))}


def script(request: OpenR1ExportRequest, made: Command) -> str:
    """``RUN``."""
    remark = f"Options of Open-R1's script may follow; they win over {RECIPE}."
    return scripts.run_script(request, made, remark, served=wants_server(request.configuration))


def server_script(request: OpenR1ExportRequest) -> str:
    """The script that starts the rollout server.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
    """
    longest, revision = request.longest, request.revision
    argv = server_command(request.configuration, request.model, request.python, longest=longest, revision=revision)
    return scripts.server_script(request, argv, {})
