"""Builds the command that trains with an exported configuration, and its scripts. Pure."""

from __future__ import annotations

from search_spaces import yaml_edit
from trainer.frameworks.common import scripts
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, LAUNCHER, PROMPTS, Command, ExportRequest
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.scripts import gpus_of, visible
from trainer.frameworks.common.serving import server_environment, split, trainer_environment
from trainer.frameworks.common.variables import variables
from trainer.frameworks.trl.keys import acting
from trainer.frameworks.trl.server import DEVELOPMENT, server_command, wants_server

CONFIG = "grpo.yaml"
PORT, GROUP_PORT = 8000, 51216
"""Ports of an exported rollout server and of the weight group: TRL's defaults."""


def by_torchrun(request: ExportRequest) -> bool:
    """Tells whether ``torchrun`` starts the processes, as in a trial.

    Sharding needs torchrun even with one process; on a CPU ``accelerate launch`` would start one of several processes.
    On several nodes torchrun takes the differences between nodes from variables.
    """
    acts = acting(request.configuration)
    sharded = bool(acts.get("zero_stage")) or acts.get("fsdp") == "fsdp2"
    return sharded or request.nodes > 1 or (request.device == "cpu" and request.world_size > 1)


def on_cpu_with_deepspeed(request: ExportRequest) -> bool:
    """Tells whether a run trains on the CPU with DeepSpeed, which ``use_cpu`` would turn off."""
    return request.device == "cpu" and bool(acting(request.configuration).get("zero_stage"))


def accelerate_text(request: ExportRequest) -> str:
    """Returns the text of ``accelerate launch``'s file."""
    precision = str(request.configuration.get("precision", "fp32"))
    several = request.world_size > 1
    values = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if several else "NO",
        "mixed_precision": {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16"}.get(precision, "no"),
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": request.world_size,
        "use_cpu": request.device == "cpu",
        "main_training_function": "main",
        "enable_cpu_affinity": False,
        "debug": False,
    }
    return "".join(f"{key}: {yaml_edit.scalar(value)}\n" for key, value in values.items())


def command(request: ExportRequest, rewards: Rewards, launcher: bool) -> Command:
    """Returns the training command, through ``LAUNCHER`` if ``launcher``, else TRL's script itself."""
    script = ("{here}/" + LAUNCHER,) if launcher else ("-m", "trl.scripts.grpo")
    own_folder = bool(request.user_config)
    environment = _environment(request)
    if own_folder and rewards.files:
        environment["PYTHONPATH"] = "{here}"
    return Command(
        argv=(request.python, *_started(request), *script, "--config", "{here}/" + CONFIG, *_files(request)),
        folder=rewards.folder or request.folder if own_folder else "{here}",
        environment=environment,
    )


def _started(request: ExportRequest) -> tuple[str, ...]:
    if by_torchrun(request):
        place = ("--nnodes", str(request.nodes)) if request.nodes > 1 else ("--standalone", "--local-addr", "127.0.0.1")
        ranks = (*place, "--nproc-per-node", str(request.world_size // request.nodes))
        return ("-m", "torch.distributed.run", *ranks, "--log-dir", "{here}/ranks")
    threads = ("--num_cpu_threads_per_process", str(request.threads))
    return ("-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE, *threads)


def _environment(request: ExportRequest) -> dict[str, str]:
    found = variables(request.configuration)
    if by_torchrun(request):
        found["OMP_NUM_THREADS"] = str(request.threads)  # it would leave a process one thread
    if request.device == "cpu" and request.world_size > request.nodes == 1:
        found["GLOO_SOCKET_IFNAME"] = "lo"
    if wants_server(request.configuration):
        return {**found, **trainer_environment(split(gpus_of(request), request.configuration)[0])}
    return {**found, **visible(request, served=False)}


def server_script(request: ExportRequest) -> str:
    """Returns the script that starts the rollout server.

    Raises ValueError if the GPUs cannot be split as configured.
    """
    longest = (request.max_prompt_length or 0) + request.max_completion_length
    argv = server_command(
        request.configuration,
        request.model,
        request.python,
        PORT,
        longest=longest,
        revision=request.revision,
        passthrough=request.passthrough,
        vllm=request.vllm,
    )
    environment = {**server_environment(()), **DEVELOPMENT}
    del environment["HF_HUB_OFFLINE"]  # a study has fetched the model before; here it may have to be
    del environment["CUDA_VISIBLE_DEVICES"]  # the script itself says it
    return scripts.server_script(request, argv, environment)


def _files(request: ExportRequest) -> tuple[str, ...]:
    """Returns the words for exported files, with whole paths if the command runs in the user's folder."""
    found: list[str] = []
    if request.user_config and not request.own_data:
        found += ["--dataset_name", "{here}/" + PROMPTS]
    if request.user_config and acting(request.configuration).get("zero_stage"):
        found += ["--deepspeed", "{here}/" + DEEPSPEED]
    return tuple(found)


def script(request: ExportRequest, made: Command) -> str:
    """Returns the text of the script ``RUN``."""
    remark = f"Options of TRL's script may follow; they win over {CONFIG}."
    if request.nodes > 1:  # torchrun's own variables for its options
        remark += (
            f" Start it on each of the {request.nodes} nodes, with PET_NODE_RANK (from 0), PET_MASTER_ADDR and "
            "PET_MASTER_PORT set: the address of the first and a port that is free there."
        )
    return scripts.run_script(request, made, remark, served=wants_server(request.configuration))
