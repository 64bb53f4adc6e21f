"""The rollout server of TRL 0.18, ``trl vllm-serve``: its command line from knobs, and back. Pure.

Any client of its port may send it weights, so it listens on this machine's loopback. It is started as a module, because
the command of that name crashes with several replicas of one GPU (``trl/cli.py``). A trial's is started by
``serving.SERVE``, which calls that module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.server_script import DTYPES, TRLS, Program, value_of
from trainer.frameworks.common.serving import HOST, replicas
from trainer.frameworks.open_r1.keys import SERVER, acting
from trainer.frameworks.trl.server import trainer_settings as settings_of_trl

PORT = 8000
"""Default port of TRL's server."""
SERVER_SHARE = 0.9
"""Default share of a GPU's memory, the server's own."""
TIMEOUT_S = 900.0
"""Seconds that the trainer waits for a server started with it: enough to load and capture a large model."""
MODULE = ("-m", "trl.scripts.vllm_serve")


def trainer_keys(port: int = PORT) -> dict[str, Any]:
    """Returns the recipe keys that lead to the server."""
    return {"vllm_server_host": HOST, "vllm_server_port": port, "vllm_server_timeout": TIMEOUT_S}


def trainer_settings(port: int) -> dict[str, Any]:
    """Returns the recipe keys that lead a trial to its server; a variable has the port for weights."""
    return {key: value for key, value in settings_of_trl(port, 0).items() if key != "vllm_group_port"}


def server_command(
    configuration: Mapping[str, KnobValue],
    model: str,
    python: str,
    port: int = PORT,
    *,
    longest: int | None = None,
    revision: str = "",
    entry: Sequence[str] = MODULE,
) -> tuple[str, ...]:
    """Returns the words that start the server.

    Args:
        configuration: knobs; knobs without an effect are left out.
        longest: tokens of the longest prompt and completion; the engine prepares for them if the configuration does
            not say for how many. ``None`` leaves it to the model's own limit.
        entry: arguments of the interpreter that name the program.

    Raises:
        ValueError: the replicas do not use exactly ``rollout_gpus``.
    """
    size, count = replicas(configuration)
    acts = {**acting(configuration), "tensor_parallel_size": size, "rollout_data_parallel_size": count}
    if longest is not None:
        acts.setdefault("max_model_len", longest)
    argv = [python, *entry, "--model", model, "--host", HOST, "--port", str(port)]
    if revision:
        argv += ["--revision", revision]
    for knob, option in SERVER.items():
        if knob in acts:
            argv += [option, _word(knob, acts[knob])]
    return tuple(argv)


def _word(knob: str, value: KnobValue) -> str:
    if knob == "rollout_dtype":
        return DTYPES[str(value)]
    return str(value).lower() if isinstance(value, bool) else str(value)


PROGRAM = Program(
    starts=TRLS,
    options={option.removeprefix("--"): value_of(knob) for knob, option in SERVER.items()},
)
"""``vllm-serve`` in a user's script."""
