"""ms-swift's rollout server: its command line, and what the trainer is told. Pure.

``swift rollout`` takes the engine's arguments under the names that ``swift rlhf`` has for a colocated one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.gpu_split import HOST, replicas
from trainer.frameworks.common.words import words_of
from trainer.frameworks.ms_swift.key_tables import DTYPES, SERVED
from trainer.frameworks.ms_swift.keys import acting, to_keys

__all__ = ["CONNECT_S", "HOST", "PORT", "server_arguments", "server_command", "trainer_settings", "wants_server"]

PORT, GROUP_PORT = 8000, 51216
CONNECT_S = 60.0
"""How long the trainer waits for a server that has answered before."""


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Completions come from a server beside the training processes."""
    return acting(configuration).get("rollout_mode") == "server"


def server_arguments(
    configuration: Mapping[str, KnobValue],
    model: str,
    port: int,
    *,
    longest: int,
    revision: str = "",
    added: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of ``swift rollout``.

    Args:
        configuration: knobs; those that do not act are left out.
        model: folder or hub id.
        port: HTTP port on the loopback.
        longest: tokens of the longest prompt and completion; the engine prepares for them if the configuration
            does not say for how many.
        revision: commit of a hub id.
        added: arguments that the model needs to be loaded, such as ``model_type``.

    Raises:
        ValueError: the replicas do not use exactly ``rollout_gpus``.
    """
    size, count = replicas(configuration)
    told = to_keys(configuration, longest)
    found: dict[str, Any] = {"model": model, **({"model_revision": revision} if revision else {}), **(added or {})}
    found.update(host=HOST, port=port)
    found.update({key: told[key] for key in SERVED if key in told})
    found.update(vllm_tensor_parallel_size=size, vllm_data_parallel_size=count)
    held = acting(configuration).get("master_weights")
    return {**found, **({} if held is None else {"torch_dtype": DTYPES[str(held)]})}


def server_command(python: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that starts it."""
    return (python, "-m", "swift.cli.main", "rollout", *words_of(arguments))


def trainer_settings(port: int, group_port: int = GROUP_PORT) -> dict[str, Any]:
    """Arguments of ``swift rlhf`` that lead to the server.

    Args:
        port: the server's HTTP port.
        group_port: where trainer and server meet to pass weights on.
    """
    return {
        "vllm_server_host": [HOST],
        "vllm_server_port": [port],
        "vllm_server_timeout": CONNECT_S,
        "vllm_server_group_port": [group_port],
    }
