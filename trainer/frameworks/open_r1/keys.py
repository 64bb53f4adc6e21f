"""Converts knobs to keys of an Open-R1 recipe, whose trainer is that of TRL 0.18, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Reach, keys_of, plain_keys
from search_spaces.legality.openr1_rules import FRAMEWORK, SERVER_OPTIONS
from search_spaces.native import acting as acting_in
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.deepspeed import PLACES, deepspeed_config, rest_of
from trainer.frameworks.common.fields import Field, fields_of
from trainer.frameworks.common.server_script import DTYPES as ENGINE_DTYPES
from trainer.frameworks.common.server_script import TRLS, Program, value_of
from trainer.frameworks.common.serving import HOST, replicas
from trainer.frameworks.common.trainer_keys import DTYPES, LEARNING, refuse, unsettable, without
from trainer.frameworks.common.trainer_keys import MEASURING as SHARED
from trainer.frameworks.common.values import TrialArguments, following, variables
from trainer.frameworks.trl.keys import Dialect, half_precision, in_keys, trainer_knobs
from trainer.frameworks.trl.server import trainer_settings as settings_of_trl

FIELDS: Mapping[str, Field] = fields_of(
    json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))["fields"]
)
"""Key of ``grpo.py`` -> field, for the versions that Open-R1 pins: TRL 0.18.0 and transformers 4.52.3. Contains only
defaults that a study reads."""
TRANSLATED = frozenset({"precision", "master_weights", "rollout_engine"})
"""Knobs whose keys have other values than the knob."""
NATIVE = plain_keys(FRAMEWORK, TRANSLATED)
"""Knob -> recipe key with the same value (except 0 in ``empty_cache_steps``)."""
CHECKPOINTING = ("gradient_checkpointing_kwargs", "use_reentrant")
"""Key, and key in its mapping, of the knob ``checkpointing_reentrant``."""
PRECISIONS = ("fp32", "bf16", "fp16")

SERVER: Mapping[str, str] = {
    "tensor_parallel_size": "--tensor_parallel_size",
    "rollout_data_parallel_size": "--data_parallel_size",
    **SERVER_OPTIONS,
}
"""Knob -> option of ``trl vllm-serve``."""
ENVIRONMENT = frozenset(keys_of(FRAMEWORK, Reach.ENVIRONMENT))
"""Knobs set by environment variables of the process."""

_LAUNCH = ("rollout_gpus", "training_gpus")
SUPPORTED = frozenset({*NATIVE, *TRANSLATED, *PLACES, *SERVER, *ENVIRONMENT, *_LAUNCH, "checkpointing_reentrant"})
"""Knobs that a trial can set; those of ``SERVER_OPTIONS``, except the first, only with a rollout server."""
KEYS = frozenset({*NATIVE.values(), "generation_batch_size", "bf16", "fp16", "torch_dtype", "use_vllm"})
"""Recipe keys that hold knobs."""
_DIALECT = Dialect(
    framework=FRAMEWORK,
    native=NATIVE,
    nested={"checkpointing_reentrant": CHECKPOINTING},
    dtype="torch_dtype",
    null_is_unset=frozenset(
        {
            *("steps_per_generation", "generation_batch_size", "tf32", "torch_compile_mode", "ddp_bucket_cap_mb"),
            *("attn_implementation", "torch_dtype", "gradient_checkpointing_kwargs"),
        }
    ),
)
INPUTS = frozenset(
    {
        *("model_name_or_path", "reward_funcs", "max_completion_length", "max_prompt_length"),
        *("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_prompt_column"),
        *("dataset_mixture", "dataset_streaming"),
    }
)
"""Recipe keys for model, prompts, rewards and lengths, which are fields of a study."""

SERVER_KEYS = frozenset({"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"})
"""Recipe keys that locate the rollout server: a trial starts its own on a free port."""
MEASURING = (
    SHARED
    | SERVER_KEYS
    | {
        *("overwrite_output_dir", "logging_dir", "logging_nan_inf_filter", "num_completions_to_print"),
        *("wandb_log_unique_prompts", "wandb_entity", "wandb_project", "wandb_run_group"),
        *("resume_from_checkpoint", "hub_model_revision", "push_to_hub_revision", "overwrite_hub_revision"),
        *("callbacks", "benchmarks"),
    }
)
"""Keys without an effect on figures: a trial ignores or replaces them; an exported recipe keeps them."""

OWN = ("openr1", NATIVE, MEASURING)
"""Name of Open-R1, its knobs' keys, and the keys that a trial ignores (``Framework`` of TRL's ``import_config``)."""
REFUSED: Mapping[str, str] = {
    "auto_find_batch_size": "it would change the batch in the middle of a trial; remove it",
    "hub_token": "a secret would be stored with the study; log in with `huggingface-cli login` instead",
    "deepspeed": "Open-R1 shards by the accelerate file; give it that file and remove the key",
    "fsdp": "an Open-R1 trial shards with DeepSpeed, by the accelerate file; remove the key",
    "model_init_kwargs": "TRL 0.18 refuses it beside a loaded model, which Open-R1 gives it; remove it",
}
"""Key -> reason why a trial cannot honour it, and the remedy."""
_OF_SERVER = frozenset(SERVER_OPTIONS) - {"gpu_memory_utilization"}

acting = partial(acting_in, framework=FRAMEWORK)
"""Returns the knobs with an effect: knobs whose needs hold, an unset knob having TRL 0.18's default."""


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether completions come from a server next to the training; that is TRL 0.18's default with vLLM."""
    return configuration.get("rollout_engine") == "vllm" and configuration.get("rollout_mode", "server") == "server"


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that an Open-R1 trial cannot set; empty if a trial can run.

    Knobs without an effect are ignored. A knob without a key in Open-R1 may be set to Open-R1's own value.
    """
    acts, server = acting(configuration), wants_server(configuration)
    beyond = [n for n in sorted(acts) if n not in SUPPORTED or (n in _OF_SERVER and not server)]
    said = [
        f"an Open-R1 trial cannot set {name}"
        for name in beyond
        if name not in KNOBS or acts[name] != _own(name, configuration)
    ]
    said += unsettable(acts, FRAMEWORK, "Open-R1", "an Open-R1 trial", PRECISIONS)
    if acts.get("optimizer") == "muon":
        said.append("optimizer muon: TRL 0.18 has no such optimizer")
    return said


def _own(name: str, configuration: Mapping[str, KnobValue]) -> KnobValue | None:
    """Returns Open-R1's default for ``name``; ``None`` if unknown."""
    setting = KNOBS[name].frameworks.get(FRAMEWORK)
    if setting is None:
        return None
    return configuration.get(setting.follows) if setting.follows else setting.default


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` of a recipe set; ignores other keys.

    Precision is fp32 if both of its keys are false (transformers 4.52). If neither is set, weights in bf16 compute in
    bf16; otherwise it is unset. Raises KnobKeyError with the key and the expected value.
    """
    found, (bf16, fp16) = trainer_knobs(keys, _DIALECT, processes), half_precision(keys)
    if bf16 is None and fp16 is None:
        return {**found, **({"precision": "bf16"} if found.get("master_weights") == "bf16" else {})}
    return {**found, "precision": "bf16" if bf16 else "fp16" if fp16 else "fp32"}


rest = partial(rest_of, knobs=KEYS, places=(CHECKPOINTING,))
"""Returns the user's keys without knobs; a mapping with a knob keeps its other entries."""


def refusal(key: str, value: Any) -> str | None:
    """Returns the reason why a trial cannot honour ``key`` with ``value``; ``None`` if it can, or without an effect."""
    return REFUSED[key] if key in REFUSED and value not in (None, False, "", [], {}) else None


def for_trial(passthrough: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``passthrough`` without keys that a trial ignores or refuses."""
    return without(passthrough, MEASURING, REFUSED)


PORT = 8000
"""Default port of TRL's server."""
SERVER_SHARE = 0.9
"""Default ``gpu_memory_utilization`` of TRL 0.18's server."""
TIMEOUT_S = 900.0
"""Seconds that the trainer waits for a server started with it: enough to load and capture a large model."""
MODULE = ("-m", "trl.scripts.vllm_serve")


TRAINER_KEYS: Mapping[str, Any] = {"vllm_server_host": HOST, "vllm_server_port": PORT, "vllm_server_timeout": TIMEOUT_S}
"""Recipe keys that connect an exported run to its server."""


def trainer_settings(port: int) -> dict[str, Any]:
    """Returns the recipe keys that connect a trial to its server; a variable holds the weight group's port."""
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
    """Returns the words that start the server, as TRL's ``server_command``.

    ``longest`` is in tokens; ``None`` leaves the length to the model's own limit. ``entry`` names the program.
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
        return ENGINE_DTYPES[str(value)]
    return str(value).lower() if isinstance(value, bool) else str(value)


PROGRAM = Program(
    starts=TRLS,
    options={option.removeprefix("--"): value_of(knob) for knob, option in SERVER.items()},
)
"""Program of the rollout server in a user's script: TRL's ``vllm-serve``."""


OBJECTIVE: Mapping[str, Any] = {
    "loss_type": "bnpo",
    "beta": 0.04,
    "scale_rewards": True,
    "mask_truncated_completions": False,
    **LEARNING,
}
"""Defaults of the objective (``GRPOConfig`` of TRL 0.18.0, ``TrainingArguments`` of transformers 4.52.3), which exports
write explicitly. ``top_k`` is not included: its default ``None`` means all tokens, and no number means that to both
rollout engines."""
CHECKOUT = "AUTOTUNE_OPENR1"
"""Environment variable with the folder of the user's Open-R1 checkout."""


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    passthrough: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the recipe keys of ``configuration``, as TRL's ``settings``.

    DeepSpeed's values are in the accelerate file, the server's on its command line.
    """
    refuse(unsupported(configuration))
    acts = acting(configuration)
    left_out = {"gpu_memory_utilization", "tensor_parallel_size"} if wants_server(configuration) else set()
    found = in_keys(acts, {knob: key for knob, key in NATIVE.items() if knob not in left_out})
    if "master_weights" in acts:
        found["torch_dtype"] = DTYPES[str(acts["master_weights"])]
    if "checkpointing_reentrant" in acts:
        key, inner = CHECKPOINTING
        own = (passthrough or {}).get(key)
        found[key] = {**(own if isinstance(own, Mapping) else {}), inner: acts["checkpointing_reentrant"]}
    steps = following(configuration, rows_per_update, world_size)
    if steps is not None:
        found["gradient_accumulation_steps"] = steps
    return found


def render(
    *,
    configuration: Mapping[str, KnobValue],
    passthrough: Mapping[str, Any],
    checkout: str,
    **trial: Unpack[TrialArguments],
) -> TrialSpec:
    """Builds the spec of one trial.

    Raises ValueError for a knob or value that Open-R1 cannot take, or without ``checkout``, the user's Open-R1 folder.
    """
    if not checkout:
        raise ValueError("an Open-R1 trial needs a checkout of Open-R1, whose grpo.py it runs")
    rows, ranks = trial["rows_per_update"], trial.get("world_size", 1)
    chosen = settings(configuration, rows, ranks, passthrough=passthrough)
    if sharding := deepspeed_config(acting(configuration), trial.get("device", "cpu")):
        chosen["deepspeed"] = sharding
    return TrialSpec(
        framework="open_r1",
        settings=chosen,
        model_settings={},
        seams={},
        passthrough={**OBJECTIVE, **for_trial(passthrough)},
        environment={**variables(configuration), CHECKOUT: checkout},
        **trial,
    )
