"""Converts a configuration to ms-swift's arguments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.deepspeed import beside_zero, merged
from trainer.frameworks.common.fields import words_of
from trainer.frameworks.common.serving import CONNECT_S, HOST, SERVE, replicas
from trainer.frameworks.common.trainer_keys import DTYPES, LEARNING, refuse, uncompiled
from trainer.frameworks.common.values import TrialArguments, following, sizes
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.key_handling import for_trial
from trainer.frameworks.ms_swift.keys import (
    CHECKPOINTING,
    ENGINE_KEY,
    SERVED,
    acting,
    rollout_keys,
    seams,
    swift_keys,
    unwritable,
    variables,
)

ADVANTAGES = {"grpo": ("group", False), "rloo": ("none", True), "reinforce_plus_plus": ("batch", True)}
"""``advantage_estimator`` -> defaults of (``scale_rewards``, ``kl_in_reward``)."""

OBJECTIVE: Mapping[str, Any] = {
    "tuner_type": "full",
    "loss_type": "dapo",
    "beta": 0.0,
    "importance_sampling_level": "token",
    "advantage_estimator": "grpo",
    "scale_rewards": "group",
    "kl_in_reward": False,
    "overlong_filter": False,
    "top_k": -1,
    "min_p": 0.0,
    **LEARNING,
    "truncation_strategy": "left",
}
"""Objective of a run without a user's configuration: TRL 1.16's values, so that a workload is the same in both
frameworks. Only the temperature, a knob, keeps ms-swift's default (0.9)."""

_DERIVED: Mapping[str, Any] = {"beta": 0.04, "loss_type": "grpo", "truncation_strategy": "left"}
"""Defaults that ms-swift derives, so that its fields lack them (swift/arguments/rlhf_args.py, _init_grpo)."""


_MEGATRON: Mapping[str, str] = {
    "learning_rate": "lr",
    "lr_scheduler_type": "lr_decay_style",
    "warmup_ratio": "lr_warmup_fraction",
    "adam_epsilon": "adam_eps",
    "max_grad_norm": "clip_grad",
}
"""Argument -> its name in ``megatron rlhf``, which has no ``min_p``."""
_NOT_RUN = "`megatron rlhf`: trials of Megatron-SWIFT are not run yet; a trial trains with `swift rlhf`"
_MAPPINGS = ("deepspeed", ENGINE_KEY, CHECKPOINTING[0])
"""Arguments that hold knobs and other settings together."""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that an ms-swift trial cannot set; empty if a trial can run."""
    return _unwritable(configuration) or ([_NOT_RUN] if megatron.chosen(configuration) else [])


def _unwritable(configuration: Mapping[str, KnobValue]) -> list[str]:
    acts = acting(configuration)
    return megatron.unwritable(acts) if megatron.chosen(configuration) else unwritable(acts)


def to_keys(configuration: Mapping[str, KnobValue], longest: int | None = None, device: str = "cpu") -> dict[str, Any]:
    """Returns the arguments of ``swift rlhf``, or of ``megatron rlhf`` without the rows (``megatron.rows``).

    The arguments are those of ``settings``. Raises ValueError for a knob or value that ms-swift cannot take.
    """
    refuse(_unwritable(configuration))
    acts = acting(configuration)
    if megatron.chosen(acts):
        return {**megatron.arguments_of(acts), **rollout_keys(acts, longest)}
    return swift_keys(acts, longest, device)


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cpu",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns (arguments of ``swift rlhf`` or ``megatron rlhf``, empty, patches) of ``configuration``.

    As TRL's ``settings``; for N ranks that share a sequence, ms-swift gets an Nth of the accumulation.
    """
    ranks = max(1, world_size // model_parallel(configuration))
    steps = following(configuration, rows_per_update, ranks)
    whole = dict(configuration) if steps is None else {**configuration, "gradient_accumulation_steps": steps}
    found = to_keys(whole, longest, device)
    if megatron.chosen(whole):
        found.update(megatron.rows(whole, rows_per_update, ranks))
    for key in _MAPPINGS:
        own = (passthrough or {}).get(key)
        ours = found.get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping):
            zero = key == "deepspeed"  # where a user may leave to ms-swift what a knob that is not set would say
            found[key] = beside_zero(ours, own, acting(whole)) if zero else merged(own, ours)
    return found, {}, seams(whole)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """Returns the user's arguments that are not knobs, with defaults of the objective written out (``OBJECTIVE``).

    ``measuring`` includes the arguments that trials ignore (``key_handling.MEASURING``).
    """
    objective = in_megatrons_words(OBJECTIVE) if megatron.chosen(configuration) else OBJECTIVE
    return {**objective, **uncompiled(passthrough if measuring else for_trial(passthrough), configuration)}


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    """Builds the spec of one trial. Raises ValueError for a knob or value that ms-swift cannot take."""
    refuse(unsupported(configuration))
    arguments, loading, replaced = settings(configuration, **sizes(trial), passthrough=passthrough)
    return TrialSpec(
        framework="ms_swift",
        settings=arguments,
        model_settings=loading,
        seams=replaced,
        passthrough=own_keys(passthrough, configuration),
        environment=variables(configuration),
        **trial,
    )


def in_megatrons_words(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Renames ``arguments`` of ``swift rlhf`` to Megatron-SWIFT's."""
    return {_MEGATRON.get(key, key): value for key, value in arguments.items() if key != "min_p"}


def completed(own: Mapping[str, Any], fields: Mapping[str, Any], *, megatron: bool = False) -> dict[str, Any]:
    """Returns a user's arguments with ms-swift's defaults of the objective written out.

    Args:
        fields: fields of the installed ms-swift (``fields_of``), for their defaults.
        megatron: whether the arguments are Megatron-SWIFT's.
    """
    found = dict(own)
    scaled, in_reward = ADVANTAGES.get(own.get("advantage_estimator") or "grpo", ADVANTAGES["grpo"])
    full = own.get("tuner_type", "full" if megatron else "lora") == "full"
    derived = {**_DERIVED, "scale_rewards": scaled, "kl_in_reward": in_reward, "learning_rate": 1e-5 if full else 1e-4}
    derived = in_megatrons_words(derived) if megatron else derived
    for key in in_megatrons_words(OBJECTIVE) if megatron else OBJECTIVE:
        default = derived.get(key, getattr(fields.get(key), "default", None))
        if found.get(key) is None and default is not None and not (key == "warmup_ratio" and own.get("warmup_steps")):
            found[key] = default
    return found


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
    """Returns the arguments of ``swift rollout``, from the arguments of TRL's ``server_command``.

    ``added`` are arguments needed to load the model, such as ``model_type``. The user's own ``vllm_engine_kwargs``
    are merged with the knobs.
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
    """Returns the arguments of ``swift rlhf`` that connect it to the server.

    ``group_port`` is the port at which trainer and server meet to transfer weights.
    """
    return {
        "vllm_server_host": [HOST],
        "vllm_server_port": [port],
        "vllm_server_timeout": CONNECT_S,
        "vllm_server_group_port": [group_port],
    }
