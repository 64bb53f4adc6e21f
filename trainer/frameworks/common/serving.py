"""What the launches of all rollout servers share: GPUs, replicas, where they answer, how long they may take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from search_spaces.configuration import KnobValue
from trainer.child import contract

HOST = "127.0.0.1"
"""A rollout server is reached from this machine alone: whoever reaches it can have it run what they like."""
READY_S = 900.0
"""How long a server may take to start; a large model is loaded, compiled and captured in that time."""
CONNECT_S = 60.0
"""How long the trainer waits for a server that has answered before."""
BY_THE_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""GPUs are told apart by number, and CUDA by itself counts the fastest first."""
IN_TRIAL: Mapping[str, str] = {"VLLM_RPC_BASE_PATH": "."}
"""Of a trial's server: its sockets go to its working directory, whose whole path may be too long for a socket."""
PORT_VARIABLE = "AUTOTUNE_TRIAL_GROUP_PORT"
"""Names the port of the weight group to a trainer that has no setting for it (child: ``weight_group.py``)."""
SERVE = str(Path(contract.__file__).parent.parent / "serve.py")
"""Starts a framework's own server so that a trial can give completions their lengths."""


def server_environment(gpus: Sequence[str]) -> dict[str, str]:
    """Environment variables of every rollout server; no secret is among them.

    Args:
        gpus: those of the server, as ``CUDA_VISIBLE_DEVICES`` names them.
    """
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        **BY_THE_BUS,
        "VLLM_HOST_IP": HOST,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def trainer_environment(gpus: Sequence[str]) -> dict[str, str]:
    """Environment variables of the training processes next to a rollout server."""
    # The weight group meets at that address.
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), **BY_THE_BUS, "VLLM_HOST_IP": HOST}


def base_url(port: int) -> str:
    """URL of the server."""
    return f"http://{HOST}:{port}"


def split(gpus: Sequence[str], configuration: Mapping[str, KnobValue]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(GPUs that train, GPUs of the server): the last ``rollout_gpus`` of ``gpus`` are the server's.

    Raises:
        ValueError: that leaves one side without any.
    """
    wanted = int(configuration.get("rollout_gpus", 0))
    if not 1 <= wanted < len(gpus):
        raise ValueError(
            f"rollout_gpus {wanted} of {len(gpus)} GPUs: a rollout server needs at least 1, and training keeps 1"
        )
    return tuple(gpus[:-wanted]), tuple(gpus[-wanted:])


def replicas(configuration: Mapping[str, KnobValue]) -> tuple[int, int]:
    """(GPUs of one replica, replicas); replicas that are not set use all of ``rollout_gpus``.

    Raises:
        ValueError: together they are not ``rollout_gpus``.
    """
    size, given = int(configuration.get("tensor_parallel_size", 1)), int(configuration.get("rollout_gpus", 0))
    count = int(configuration.get("rollout_data_parallel_size", max(1, given // size)))
    if size * count != given:
        raise ValueError(f"tensor_parallel_size {size} × {count} replicas = {size * count} is not rollout_gpus {given}")
    return size, count
