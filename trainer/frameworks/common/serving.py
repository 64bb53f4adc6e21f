"""What the launches of all rollout servers share: where they answer, what their processes see, how long they may take.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.child import contract
from trainer.frameworks.common.gpu_split import HOST

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
    """Where the server answers."""
    return f"http://{HOST}:{port}"
