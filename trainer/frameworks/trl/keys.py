"""Converts knobs to keys of TRL's GRPO script, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from search_spaces.configuration import KnobValue
from search_spaces.knobs import Reach, defaults, keys_of, places_in, plain_keys
from search_spaces.knobs.build import ENGINE_ARGUMENT
from search_spaces.knobs.model import show
from search_spaces.native import acting as acting_in
from trainer.child.contract import TrialSpec
from trainer.frameworks.common import deepspeed, trainer_keys
from trainer.frameworks.common.values import KnobKeyError, TrialArguments, following, parsed, sizes, variables
from trainer.frameworks.trl.key_handling import for_trial


@dataclass(frozen=True)
class Dialect:
    """Names of the knobs in one version of TRL."""

    framework: str
    native: Mapping[str, str]
    """Knob -> key whose value needs no conversion."""
    nested: Mapping[str, tuple[str, str]]
    """Knob -> (key, key in its mapping)."""
    dtype: str
    """Key that names the weights' type."""
    null_is_unset: frozenset[str]
    """Keys at which null means the default."""


FRAMEWORK = "trl"
ZERO = frozenset(deepspeed.PLACES)
"""Knobs in DeepSpeed's configuration."""
FSDP = frozenset({"fsdp", *places_in(FRAMEWORK, "fsdp_config")})
TRANSLATED = frozenset({"precision", "master_weights", "attn_implementation", "rollout_engine", "sleep_level"})
"""Knobs whose keys have other values than the knob, or are keys of the model."""
NATIVE = plain_keys(FRAMEWORK, TRANSLATED | FSDP)
"""Knob -> ``GRPOConfig`` key with the same value (except 0 in ``empty_cache_steps``)."""
NESTED: Mapping[str, tuple[str, str]] = {
    knob: (key, inner)
    for key in ("gradient_checkpointing_kwargs", "model_init_kwargs", "transformers_continuous_batching_config")
    for knob, (inner,) in places_in(FRAMEWORK, key).items()
}
"""Knob -> (key, key in its mapping); other entries of the mapping stay the user's."""

TRAINER_SEAMS = frozenset({"logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk", "activation_offload"})
"""Knobs that patches of the built trainer set (child: ``seams.py``)."""
ENGINE_SEAMS = frozenset(
    knob
    for knob, place in keys_of(FRAMEWORK, Reach.SEAM).items()
    if place.startswith(ENGINE_ARGUMENT.partition("%")[0])
)
"""Knobs that are arguments of the vLLM engine (child: ``engine.py``; a server takes them on its command line)."""
FLOAT8_SEAMS = frozenset({"precision", "fp8_emulate"})
"""Knobs that patches of the loaded model set (child: ``float8.py``); ``precision`` only as fp8."""
SEAMS = TRAINER_SEAMS | ENGINE_SEAMS | {"fp8_emulate"}
"""Knobs that no key sets, whatever their value."""
_LEFT_ALONE = {"rollout_quantization": "none", "activation_offload": False, "speculative_decoding": "none"}
"""Values at which nothing is patched. (``none`` would undo the quantization that TRL takes from a QLoRA model.)"""

SERVER = frozenset({"rollout_gpus", "rollout_data_parallel_size", "training_gpus"})
"""Knobs of the launch of trainer and rollout server, without a key in TRL's file."""
ENVIRONMENT = frozenset(keys_of(FRAMEWORK, Reach.ENVIRONMENT))
"""Knobs set by environment variables of the process."""

PRECISIONS = ("fp32", "bf16", "fp16", "fp8")
SUPPORTED = frozenset({*NATIVE, *NESTED, *TRANSLATED, *SEAMS, *ZERO, *FSDP, *SERVER, *ENVIRONMENT})
"""Knobs a TRL trial can set."""
OTHERS: Mapping[str, str] = {"rlhf_type": "swift", "actor_rollout_ref": "verl", "algorithm": "verl"}
"""Key that only another framework's file has -> the framework."""
KEYS = frozenset(
    {
        *(*NATIVE.values(), "generation_batch_size", "bf16", "fp16", "dtype", "attn_implementation", "use_vllm"),
        *("vllm_enable_sleep_mode", "deepspeed", "fsdp"),
    }
)
"""TRL's keys that hold knobs; an exported file sets them only from the configuration."""
DIALECT = Dialect(
    framework=FRAMEWORK,
    native={**NATIVE, "attn_implementation": "attn_implementation"},
    nested=NESTED,
    dtype="dtype",
    null_is_unset=frozenset(
        {
            *("steps_per_generation", "generation_batch_size", "tf32", "pad_to_multiple_of", "bf16"),
            *("attn_implementation", "torch_compile_mode", "ddp_bucket_cap_mb", "vllm_max_model_length"),
        }
    ),
)
_NO_PADDING = ("auto", "none", "null")
_FSDP_WORDS: Mapping[str, Mapping[str, KnobValue]] = {
    "full_shard": {"fsdp_reshard_after_forward": True},
    "shard_grad_op": {"fsdp_reshard_after_forward": False},
    "offload": {"fsdp_offload": True},
    "auto_wrap": {},
    "true": {},
}
_INSIDE_FSDP = {"reshard_after_forward": "fsdp_reshard_after_forward", "cpu_offload": "fsdp_offload"}
"""Key of ``fsdp_config`` -> knob."""

acting = partial(acting_in, framework=FRAMEWORK)
"""Returns the knobs with an effect: knobs whose needs hold, an unset knob having TRL's default."""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that a TRL trial cannot set; empty if a trial can run."""
    acts = acting(configuration)
    said = [f"a TRL trial cannot set {name}" for name in sorted(acts) if name not in SUPPORTED]
    said += trainer_keys.unsettable(acts, FRAMEWORK, "TRL", "a TRL trial", PRECISIONS)
    if acts.get("optimizer") == "muon":
        said.append("optimizer muon: TRL has no such optimizer")
    if acts.get("sleep_level", 0) not in (0, 2):
        said.append(f"sleep_level {acts['sleep_level']}: TRL's engine sleeps at level 2 or not at all")
    if acts.get("fsdp") == "fsdp1":
        said.append("fsdp fsdp1: a TRL trial shards with fsdp2")
    return said


def training_keys(
    configuration: Mapping[str, KnobValue], longest: int | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Returns the ``GRPOConfig`` arguments of the knobs with an effect (``settings``)."""
    acts = acting(configuration)
    found = in_keys(acts, NATIVE)
    for knob in ("checkpointing_reentrant", "continuous_batching_memory"):
        if knob in acts:
            key, inner = NESTED[knob]
            found[key] = {inner: acts[knob]}
    if "sleep_level" in acts:
        found["vllm_enable_sleep_mode"] = acts["sleep_level"] == 2
    if found.get("use_vllm") and longest is not None and "max_model_len" not in acts:
        found["vllm_max_model_length"] = longest
    if "zero_stage" in acts:
        found["deepspeed"] = deepspeed.deepspeed_config(acts, device) or None
    if acts.get("fsdp") == "fsdp2":
        own = {key: acts[knob] for key, knob in _INSIDE_FSDP.items() if knob in acts}
        found.update(fsdp=True, fsdp_config={"version": 2, **own})
    elif "fsdp" in acts:
        found["fsdp"] = None
    return found


def model_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns the arguments of ``from_pretrained`` for the knobs that are set."""
    found: dict[str, Any] = {}
    if "master_weights" in configuration:
        found["dtype"] = trainer_keys.DTYPES[str(configuration["master_weights"])]
    if "attn_implementation" in configuration:
        found["attn_implementation"] = configuration["attn_implementation"]
    if "hub_kernels" in configuration:
        found["use_kernels"] = configuration["hub_kernels"]
    return found


def seams(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Returns knob -> value of knobs set by patches, if they have an effect; a rollout server's engine sets its own.

    ``precision`` is included only as ``fp8``.
    """
    acts = acting(configuration)
    names = SEAMS - ENGINE_SEAMS if acts.get("rollout_mode") == "server" else SEAMS
    found = {name: acts[name] for name in sorted(names) if name in acts}
    if acts.get("precision") == "fp8":
        found["precision"] = "fp8"
    return {name: value for name, value in found.items() if _LEFT_ALONE.get(name) != value}


def with_own(
    training: Mapping[str, Any], passthrough: Mapping[str, Any], acts: Mapping[str, KnobValue]
) -> dict[str, Any]:
    """Returns ``training`` merged with the user's own mappings; knobs with an effect override the user's values."""
    found = dict(training)
    for key in ("deepspeed", "fsdp_config", *(key for key, _ in NESTED.values())):
        own, ours = passthrough.get(key), training.get(key)
        if isinstance(own, Mapping) and isinstance(ours, Mapping) and ours:
            zero = key == "deepspeed"
            found[key] = (
                deepspeed.beside_zero(ours, own, acts) if zero else deepspeed.merged(ours, deepspeed.without(own, ()))
            )
    return found


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` of TRL's script set; ignores other keys.

    Args:
        keys: values as TRL's parser would have them; ``deepspeed`` and ``fsdp_config`` as mappings, not as paths.
        processes: training processes, for ``generation_batch_size``.

    Raises:
        KnobKeyError: with the key and the expected value.
    """
    padding = keys.get("pad_to_multiple_of")
    if isinstance(padding, str):
        number = int(padding) if padding.isdecimal() and len(padding) < 20 else padding
        keys = {**keys, "pad_to_multiple_of": None if padding.lower() in _NO_PADDING else number}
    found = {**trainer_knobs(keys, DIALECT, processes), **_precision(keys)}
    if "vllm_enable_sleep_mode" in keys:
        found["sleep_level"] = 2 if keys["vllm_enable_sleep_mode"] else 0
    return {**found, **deepspeed.zero_knobs(keys), **_fsdp_knobs(keys)}


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs; a mapping with knobs keeps its other entries."""
    known = {"version", *_INSIDE_FSDP}
    sharding = keys.get("fsdp_config")
    names = sharding if isinstance(sharding, Mapping) else ()
    of_fsdp = {("fsdp_config", name) for name in names if name.removeprefix("fsdp_") in known}
    return deepspeed.rest_of(keys, KEYS, {*NESTED.values(), *deepspeed.zero_places(keys), *of_fsdp})


def trainer_knobs(keys: Mapping[str, Any], dialect: Dialect, processes: int) -> dict[str, KnobValue]:
    """Returns the knobs of the keys that all TRL trainers share, without the precision, as ``from_keys``."""
    keys = {key: value for key, value in keys.items() if value is not None or key not in dialect.null_is_unset}
    found = {
        knob: parsed(knob, key, _cache_steps(key, keys[key])) for knob, key in dialect.native.items() if key in keys
    }
    if "generation_batch_size" in keys:  # TRL 0.18 rounds down without a word
        if "steps_per_generation" in found:
            raise KnobKeyError(
                "generation_batch_size", "it cannot be set beside steps_per_generation; remove one of them"
            )
        micro = int(found.get("micro_batch_size", defaults(dialect.framework)["micro_batch_size"]))
        found["steps_per_generation"] = trainer_keys.micro_batches(keys["generation_batch_size"], micro, processes)
    if trainer_keys.compiles(keys):
        found["torch_compile"] = True
    if dialect.dtype in keys:
        found["master_weights"] = trainer_keys.weights_held(dialect.dtype, keys[dialect.dtype], trainer_keys.DTYPES)
    if "use_vllm" in keys:
        found["rollout_engine"] = "vllm" if keys["use_vllm"] else "transformers"
    for knob, place in dialect.nested.items():
        if deepspeed.at(keys, place) is not None:
            found[knob] = parsed(knob, ".".join(place), deepspeed.at(keys, place))
    return found


def half_precision(keys: Mapping[str, Any]) -> tuple[bool | None, bool | None]:
    """Returns ``bf16`` and ``fp16``; ``None`` for a switch that is not set.

    Raises KnobKeyError for a value that is not a switch, or if both are on.
    """
    bf16, fp16 = keys.get("bf16"), keys.get("fp16")
    for key, value in (("bf16", bf16), ("fp16", fp16)):
        if value is not None and not isinstance(value, bool):
            raise KnobKeyError(key, f"expected true or false, got {show(value)}")
    if bf16 and fp16:
        raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
    return bf16, fp16


def _cache_steps(key: str, value: Any) -> Any:
    """Returns ``value``; null as 0 for ``torch_empty_cache_steps``. Raises KnobKeyError for 0 itself."""
    if key != "torch_empty_cache_steps":
        return value
    if value == 0:
        raise KnobKeyError(key, "expected a whole number of at least 1, or null, got 0")
    return 0 if value is None else value


def in_keys(acts: Mapping[str, KnobValue], native: Mapping[str, str]) -> dict[str, Any]:
    """Returns keys of transformers' trainers: those in ``native``, and the precision's switches."""
    found: dict[str, Any] = {key: acts[knob] for knob, key in native.items() if knob in acts}
    if "empty_cache_steps" in acts:
        found["torch_empty_cache_steps"] = acts["empty_cache_steps"] or None  # 0 is refused
    if "precision" in acts:
        found["bf16"] = acts["precision"] in ("bf16", "fp8")  # around FP8's matrix products, as torchao's recipe has it
        found["fp16"] = acts["precision"] == "fp16"
    if "rollout_engine" in acts:
        found["use_vllm"] = acts["rollout_engine"] == "vllm"
    return found


def _precision(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns ``precision``; ``bf16`` is true by default unless ``fp16`` is true, as in TRL."""
    bf16, fp16 = half_precision(keys)
    if bf16 is None and fp16 is None:
        return {}
    mixed = not fp16 if bf16 is None else bf16
    return {"precision": "fp16" if fp16 else "bf16" if mixed else "fp32"}


def _fsdp_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of ``fsdp`` and ``fsdp_config``.

    Raises KnobKeyError for FSDP's first version, or a way to shard that no knob has.
    """
    wanted, settings = keys.get("fsdp"), keys.get("fsdp_config")
    if "fsdp" not in keys and not settings:
        return {}
    if not wanted:
        return {"fsdp": "none"} if "fsdp" in keys else {}
    found: dict[str, KnobValue] = {"fsdp": "fsdp2"}
    for word in str(wanted).lower().split():
        if word not in _FSDP_WORDS:
            raise KnobKeyError("fsdp", f"expected true or the words {', '.join(_FSDP_WORDS)}, got {show(word)}")
        found.update(_FSDP_WORDS[word])
    for name, value in (settings or {}).items():
        key = name.removeprefix("fsdp_")
        if key == "version" and str(value) != "2":
            raise KnobKeyError("fsdp_config.version", f"a trial shards with FSDP2, got {show(value)}")
        if key in _INSIDE_FSDP:
            found[_INSIDE_FSDP[key]] = parsed(_INSIDE_FSDP[key], f"fsdp_config.{name}", deepspeed.plain_word(value))
    return found


def settings(
    configuration: Mapping[str, KnobValue],
    rows_per_update: int,
    world_size: int,
    *,
    device: str = "cpu",
    longest: int | None = None,
    passthrough: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns (``GRPOConfig`` arguments, model arguments, patches) of ``configuration``; ignores knobs without effect.

    An accumulation that is not set follows from the micro-batch, so that an update keeps its rows: micro-batch x
    accumulation x data-parallel ranks. Any other knob that is not set has the value of the user's own key, else TRL's
    default.

    Args:
        rows_per_update: completions of an update.
        longest: tokens of the longest prompt and completion, the default of vLLM's length limit; the model's own
            limit may need a larger cache than the machine has.
        passthrough: the user's own keys, whose mappings are merged with the knobs.

    Raises:
        ValueError: a knob or value that TRL cannot take (``unsupported``).
    """
    trainer_keys.refuse(unsupported(configuration))
    training = with_own(training_keys(configuration, longest, device), passthrough or {}, acting(configuration))
    steps = following(configuration, rows_per_update, world_size)
    if steps is not None:
        training["gradient_accumulation_steps"] = steps
    return training, model_keys(configuration), seams(configuration)


def own_keys(
    passthrough: Mapping[str, Any], configuration: Mapping[str, KnobValue], *, measuring: bool = False
) -> dict[str, Any]:
    """Returns the user's keys that are not knobs.

    ``measuring`` includes the keys that a trial ignores (``key_handling.MEASURING``).
    """
    return trainer_keys.uncompiled(passthrough if measuring else for_trial(passthrough), configuration)


def render(
    *, configuration: Mapping[str, KnobValue], passthrough: Mapping[str, Any], **trial: Unpack[TrialArguments]
) -> TrialSpec:
    """Builds the spec of one trial. Raises ValueError for a knob or value that TRL cannot take."""
    training, loading, replaced = settings(configuration, **sizes(trial), passthrough=passthrough)
    return TrialSpec(
        framework="trl",
        settings=training,
        model_settings=loading,
        seams=replaced,
        passthrough=own_keys(passthrough, configuration),
        environment=variables(configuration),
        **trial,
    )
