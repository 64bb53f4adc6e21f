"""The command that trains with an exported configuration, and the scripts that run it. Pure."""

from __future__ import annotations

from search_spaces import yaml_edit
from trainer.frameworks.common import scripts
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, LAUNCHER, PROMPTS, Command, Wanted
from trainer.frameworks.common.gpu_split import split
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.scripts import gpus_of, visible
from trainer.frameworks.common.serving import trainer_environment
from trainer.frameworks.common.variables import variables
from trainer.frameworks.trl.keys import acting
from trainer.frameworks.trl.server import server_command, server_environment, wants_server

CONFIG = "grpo.yaml"
PORT, GROUP_PORT = 8000, 51216
"""Of an exported rollout server, and of the group that weights are sent in: TRL's own."""


def by_torchrun(wanted: Wanted) -> bool:
    """Whether ``torchrun`` starts the processes, as it does a trial's.

    Sharding asks for it even with one process; of several on a CPU, ``accelerate launch`` would start one. On several
    nodes it takes what differs between them from variables.
    """
    acts = acting(wanted.configuration)
    sharded = bool(acts.get("zero_stage")) or acts.get("fsdp") == "fsdp2"
    return sharded or wanted.nodes > 1 or (wanted.device == "cpu" and wanted.world_size > 1)


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
        place = ("--nnodes", str(wanted.nodes)) if wanted.nodes > 1 else ("--standalone", "--local-addr", "127.0.0.1")
        ranks = (*place, "--nproc-per-node", str(wanted.world_size // wanted.nodes))
        return ("-m", "torch.distributed.run", *ranks, "--log-dir", "{here}/ranks")
    threads = ("--num_cpu_threads_per_process", str(wanted.threads))
    return ("-m", "accelerate.commands.launch", "--config_file", "{here}/" + ACCELERATE, *threads)


def _environment(wanted: Wanted) -> dict[str, str]:
    found = variables(wanted.configuration)
    if by_torchrun(wanted):
        found["OMP_NUM_THREADS"] = str(wanted.threads)  # it would leave a process one thread
    if wanted.device == "cpu" and wanted.world_size > wanted.nodes == 1:
        found["GLOO_SOCKET_IFNAME"] = "lo"
    if wants_server(wanted.configuration):
        return {**found, **trainer_environment(split(gpus_of(wanted), wanted.configuration)[0])}
    return {**found, **visible(wanted, served=False)}


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
    environment = server_environment(split(gpus_of(wanted), wanted.configuration)[1])
    del environment["HF_HUB_OFFLINE"]  # a study has fetched the model before; here it may have to be
    del environment["CUDA_VISIBLE_DEVICES"]  # the script itself says it
    return scripts.server_script(wanted, argv, environment)


def _files(wanted: Wanted) -> tuple[str, ...]:
    """Exported files the configuration names, by their whole path where the command runs in the user's folder."""
    found: list[str] = []
    if wanted.user_config and not wanted.own_data:
        found += ["--dataset_name", "{here}/" + PROMPTS]
    if wanted.user_config and acting(wanted.configuration).get("zero_stage"):
        found += ["--deepspeed", "{here}/" + DEEPSPEED]
    return tuple(found)


def script(wanted: Wanted, made: Command) -> str:
    """``RUN``."""
    remark = f"Options of TRL's script may follow; they win over {CONFIG}."
    if wanted.nodes > 1:  # torchrun's own variables for its options
        remark += (
            f" Start it on each of the {wanted.nodes} nodes, with PET_NODE_RANK (from 0), PET_MASTER_ADDR and "
            "PET_MASTER_PORT set: the address of the first and a port that is free there."
        )
    return scripts.run_script(wanted, made, remark, served=wants_server(wanted.configuration))
