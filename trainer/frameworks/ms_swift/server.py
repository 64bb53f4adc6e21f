"""ms-swift's rollout server: its command line, and settings of the trainer. Pure.

``swift rollout`` takes the engine's arguments under the names that ``swift rlhf`` has for a colocated one. A trial's is
started by ``serving.SERVE``, which calls the function of ``swift rollout``, and takes the model from the trial itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.deepspeed import merged
from trainer.frameworks.common.fields import words_of
from trainer.frameworks.common.serving import CONNECT_S, HOST, SERVE, replicas
from trainer.frameworks.common.trainer_keys import DTYPES
from trainer.frameworks.ms_swift.keys import ENGINE_KEY, SERVED, acting
from trainer.frameworks.ms_swift.render import to_keys

PORT, GROUP_PORT = 8000, 51216


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether completions come from a rollout server."""
    return acting(configuration).get("rollout_mode") == "server"


def server_arguments(
    configuration: Mapping[str, KnobValue],
    model: str,
    port: int,
    *,
    longest: int,
    revision: str = "",
    added: Mapping[str, Any] | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the arguments of ``swift rollout``.

    Args:
        configuration: knobs; knobs without an effect are left out.
        longest: tokens of the longest prompt and completion; the engine prepares for them if the configuration
            does not say for how many.
        added: arguments that the model needs to be loaded, such as ``model_type``.
        passthrough: the user's own arguments; their ``vllm_engine_kwargs`` are merged with the knobs.

    Raises:
        ValueError: the replicas do not use exactly ``rollout_gpus``.
    """
    size, count = replicas(configuration)
    keys = to_keys(configuration, longest)
    own = (passthrough or {}).get(ENGINE_KEY)
    if isinstance(own, Mapping):
        keys[ENGINE_KEY] = merged(own, keys.get(ENGINE_KEY, {}))
    found: dict[str, Any] = {"model": model, **({"model_revision": revision} if revision else {}), **(added or {})}
    found.update(host=HOST, port=port)
    found.update({key: keys[key] for key in SERVED if key in keys})
    found.update(vllm_tensor_parallel_size=size, vllm_data_parallel_size=count)
    held = acting(configuration).get("master_weights")
    return {**found, **({} if held is None else {"torch_dtype": DTYPES[str(held)]})}


def server_command(python: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the command that starts the server."""
    return (python, "-m", "swift.cli.main", "rollout", *words_of(arguments))


def trial_command(python: str, directory: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the command that starts the server of the trial in ``directory``, with its model and templates."""
    options = {key: value for key, value in arguments.items() if key not in ("model", "model_revision")}
    return (python, SERVE, "ms_swift", directory, *words_of(options))


def trainer_settings(port: int, group_port: int = GROUP_PORT) -> dict[str, Any]:
    """Returns the arguments of ``swift rlhf`` that lead to the server.

    ``group_port`` is the port at which trainer and server meet to transfer weights.
    """
    return {
        "vllm_server_host": [HOST],
        "vllm_server_port": [port],
        "vllm_server_timeout": CONNECT_S,
        "vllm_server_group_port": [group_port],
    }
