"""Launch settings that all rollout servers share: GPUs, replicas, address and timeouts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from search_spaces.configuration import KnobValue
from trainer.child import contract

HOST = "127.0.0.1"
"""Address of a rollout server: local only, because a client can make the server run any code."""
READY_S = 900.0
"""Seconds that a server may take to start: enough to load, compile and capture a large model."""
CONNECT_S = 60.0
"""Seconds that the trainer waits for a server that has answered before."""
BY_THE_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Variable that makes CUDA number GPUs by bus; by default it numbers the fastest first."""
IN_TRIAL: Mapping[str, str] = {"VLLM_RPC_BASE_PATH": "."}
"""Variables of a trial's server: sockets in its working directory, as an absolute path may be too long for a socket."""
PORT_VARIABLE = "AUTOTUNE_TRIAL_GROUP_PORT"
"""Environment variable with the weight group's port, for trainers without a setting for it (``weight_group.py``)."""
SERVE = str(Path(contract.__file__).parent.parent / "serve.py")
"""Script that starts a framework's own server, patched so that each completion gets its own length."""


def server_environment(gpus: Sequence[str]) -> dict[str, str]:
    """Returns the environment variables of every rollout server, without secrets.

    Args:
        gpus: the server's GPUs, as ``CUDA_VISIBLE_DEVICES`` names them.
    """
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        **BY_THE_BUS,
        "VLLM_HOST_IP": HOST,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def trainer_environment(gpus: Sequence[str]) -> dict[str, str]:
    """Returns the environment variables of the training processes next to a rollout server."""
    # The weight group meets at that address.
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), **BY_THE_BUS, "VLLM_HOST_IP": HOST}


def base_url(port: int) -> str:
    """Returns the URL of a rollout server on this machine."""
    return f"http://{HOST}:{port}"


def split(gpus: Sequence[str], configuration: Mapping[str, KnobValue]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits ``gpus`` into training GPUs and the server's, which are the last ``rollout_gpus``.

    Raises ValueError if one side has no GPU.
    """
    wanted = int(configuration.get("rollout_gpus", 0))
    if not 1 <= wanted < len(gpus):
        raise ValueError(
            f"rollout_gpus {wanted} of {len(gpus)} GPUs: a rollout server needs at least 1, and training keeps 1"
        )
    return tuple(gpus[:-wanted]), tuple(gpus[-wanted:])


def replicas(configuration: Mapping[str, KnobValue]) -> tuple[int, int]:
    """Returns (GPUs of one replica, replicas); replicas that are not set use all of ``rollout_gpus``.

    Raises ValueError if their product is not ``rollout_gpus``.
    """
    size, given = int(configuration.get("tensor_parallel_size", 1)), int(configuration.get("rollout_gpus", 0))
    count = int(configuration.get("rollout_data_parallel_size", max(1, given // size)))
    if size * count != given:
        raise ValueError(f"tensor_parallel_size {size} × {count} replicas = {size * count} is not rollout_gpus {given}")
    return size, count
