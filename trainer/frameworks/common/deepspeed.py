"""Builds DeepSpeed's configuration from knobs, and reads knobs from a user's, for every framework. Pure.

Every value is written, so that the defaults of another DeepSpeed change nothing; only values that transformers fills in
from the trainer's own keys are ``"auto"``. transformers refuses a value that differs from the trainer's
(``integrations/deepspeed.py:129-189`` of 5.17, as of 4.52: ``trainer_config_process``, ``trainer_config_finalize``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.values import KnobKeyError, parsed

ZERO = "zero_optimization"
AUTO = "auto"
"""A value that leaves the choice to the framework."""
PLACES: Mapping[str, tuple[str, ...]] = {
    "zero_stage": (ZERO, "stage"),
    "offload_optimizer": (ZERO, "offload_optimizer", "device"),
    "offload_parameters": (ZERO, "offload_param", "device"),
    "zero_overlap": (ZERO, "overlap_comm"),
    "zero_contiguous_gradients": (ZERO, "contiguous_gradients"),
    "zero_reduce_bucket": (ZERO, "reduce_bucket_size"),
    "zero_allgather_bucket": (ZERO, "allgather_bucket_size"),
    "zero_prefetch_bucket": (ZERO, "stage3_prefetch_bucket_size"),
    "reduce_precision": ("communication_data_type",),
}
"""Knob -> path of keys in DeepSpeed's configuration."""


_FROM_KNOBS: frozenset[tuple[str, ...]] = frozenset(
    {
        *(("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",)),
        *(("bf16", "enabled"), ("fp16", "enabled")),
    }
)
"""Paths of values that the batch and precision knobs set."""


_MICRO, _ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
_SAID_TWICE: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("train_micro_batch_size_per_gpu",): (_MICRO,),
    ("gradient_accumulation_steps",): (_ACCUMULATION,),
    ("gradient_clipping",): ("max_grad_norm",),
    ("optimizer", "params", "lr"): ("learning_rate",),
    ("optimizer", "params", "betas"): ("adam_beta1", "adam_beta2"),
    ("optimizer", "params", "eps"): ("adam_epsilon",),
    ("optimizer", "params", "weight_decay"): ("weight_decay",),
    ("scheduler", "params", "warmup_max_lr"): ("learning_rate",),
    ("fp16", "enabled"): ("fp16",),
    ("bf16", "enabled"): ("bf16",),
}
"""Path -> the trainer's keys with the same meaning, in the order of DeepSpeed's values."""
_OF_THE_SCHEDULE = (("scheduler", "params", "total_num_steps"), ("scheduler", "params", "warmup_num_steps"))
"""Paths of numbers of steps, of which a trial has fewer."""
_STEPS = "a trial has another number of steps; write auto"


CPU_BUCKET = 10_000_000
"""Elements of an unset bucket on a CPU. DeepSpeed's 500,000,000 would reserve 2 GB for each bucket, for any model size,
which the limit on a process's memory counts although the memory is never touched."""
PERSISTENT = 100_000
"""Elements of the largest weight that ZeRO-3 keeps whole on every rank; DeepSpeed's default."""
LIVE = 1_000_000_000
"""ZeRO-3's maximum of gathered elements, and its reuse distance in elements; DeepSpeed's defaults."""

_BUCKETS = ("zero_reduce_bucket", "zero_allgather_bucket", "zero_prefetch_bucket")


def at(settings: Any, place: tuple[str, ...]) -> Any:
    """Returns the value at a path of keys; ``None`` if it is absent."""
    for name in place:
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings


def values_of(settings: Any) -> dict[str, Any]:
    """Returns knob -> value as written in ``settings``, without null and ``AUTO``."""
    found = {knob: at(settings, place) for knob, place in PLACES.items()}
    return {knob: value for knob, value in found.items() if value is not None and value != AUTO}


def whole(value: Any) -> Any:
    """Returns a float without a fraction (``5e8``) as an int, any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def zero_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of the key ``deepspeed``, without ``auto``, which leaves the choice to the framework.

    Raises KnobKeyError for a value that no knob has.
    """
    if "deepspeed" not in keys:
        return {}
    settings = keys["deepspeed"]
    if settings is None:
        return {"zero_stage": 0}
    if not isinstance(settings, Mapping):
        raise KnobKeyError("deepspeed", f"expected a mapping, got {show(settings)}")
    zero = settings.get(ZERO, {})
    if not isinstance(zero, Mapping):
        raise KnobKeyError(f"deepspeed.{ZERO}", f"expected a mapping, got {show(zero)}")
    found: dict[str, KnobValue] = {"zero_stage": 0}
    for knob, value in values_of(settings).items():
        found[knob] = parsed(knob, ".".join(("deepspeed", *PLACES[knob])), plain_word(value))
    return found


def zero_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns DeepSpeed's configuration without values of knobs and values that follow from knobs; ``auto`` stays."""
    return without(settings, {PLACES[knob] for knob in values_of(settings)} | _FROM_KNOBS)


def zero_places(keys: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Returns the paths, in ``keys``, of DeepSpeed's values that are knobs or follow from knobs."""
    return {("deepspeed", *path) for path in {PLACES[knob] for knob in values_of(keys.get("deepspeed"))} | _FROM_KNOBS}


def beside_zero(ours: Mapping[str, Any], own: Mapping[str, Any], acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Merges DeepSpeed's configuration ``ours`` with the user's ``own``; for knobs in ``acts`` our value wins."""
    return merged(ours, without(own, {path for knob, path in PLACES.items() if knob in acts}))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``under`` updated with ``over``, at every depth of mappings."""
    found = dict(under)
    for key, value in over.items():
        there = found.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        found[key] = merged(there, value) if both else value  # type: ignore[arg-type]
    return found


def leaves(settings: Mapping[str, Any], here: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields (path, value) of every value in ``settings`` that is not a mapping."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*here, name))
        else:
            yield (*here, name), value


def plain_word(value: Any) -> Any:
    """Converts the words true and false, and whole floats (``5e8``), to DeepSpeed's booleans and integers."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return whole(value)


def without(
    settings: Mapping[str, Any], paths: Collection[tuple[str, ...]], here: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Returns ``settings`` without ``paths``, and without mappings that become empty."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        place = (*here, name)
        if place in paths:
            continue
        inner = without(value, paths, place) if isinstance(value, Mapping) else value
        if inner or not value or not isinstance(value, Mapping):
            found[name] = inner
    return found


def rest_of(keys: Mapping[str, Any], knobs: Collection[str], places: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """Returns ``keys`` without ``knobs``; a mapping that holds some of the paths ``places`` keeps its other entries."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, Mapping) and any(place[0] == key for place in places):
            left = without({key: value}, places)
            found.update(left if value or key not in knobs else {})
        elif key not in knobs:
            found[key] = value
    return found


def said_otherwise(
    settings: Any, keys: Mapping[str, Any], unset: Mapping[str, Any], processes: int
) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, problem) of every value that contradicts the trainer's keys.

    Args:
        unset: defaults of the trainer's keys; a key without value and default is not compared.
    """
    known = {**unset, **{key: value for key, value in keys.items() if value is not None}}
    for place, names in _SAID_TWICE.items():
        value = at(settings, place)
        if value in (None, AUTO) or not all(name in known for name in names):
            continue
        own = known[names[0]] if len(names) == 1 else [known[name] for name in names]
        if value != own:
            yield ".".join(place), _differs(value, f"{' and '.join(names)} {_show(own)}")
    rows = at(settings, ("train_batch_size",))
    if rows not in (None, AUTO) and _MICRO in known and _ACCUMULATION in known:
        own = known[_MICRO] * known[_ACCUMULATION] * processes
        if rows != own:
            count = f"{processes} process{'es' if processes > 1 else ''}"
            product = f"{_MICRO} {known[_MICRO]} x {_ACCUMULATION} {known[_ACCUMULATION]} x {count}"
            yield "train_batch_size", _differs(rows, f"{product} = {own}")
    for place in _OF_THE_SCHEDULE:
        if at(settings, place) not in (None, AUTO):
            yield ".".join(place), f"{_show(at(settings, place))}: {_STEPS}"


def batch_unset(framework: str) -> dict[str, KnobValue]:
    """Returns ``framework``'s defaults of the batch keys."""
    own = defaults(framework)
    return {_MICRO: own["micro_batch_size"], _ACCUMULATION: own.get("gradient_accumulation_steps", 1)}


def _differs(value: Any, own: str) -> str:
    return f"{_show(value)} here and {own} differ, which transformers refuses; write auto"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else show(value)


def deepspeed_config(configuration: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    """Builds the ``deepspeed`` argument of ``GRPOConfig``; empty without ZeRO (``zero_stage`` 0 is plain DDP).

    Args:
        configuration: knobs; knobs without an effect at this stage are omitted.
    """
    stage = int(configuration.get("zero_stage", 0))
    if stage == 0:
        return {}
    small = dict.fromkeys(_BUCKETS, CPU_BUCKET) if device == "cpu" else {}
    values = {**defaults("trl"), **small, **configuration}
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": values["zero_overlap"],
        "contiguous_gradients": values["zero_contiguous_gradients"],
        "reduce_bucket_size": int(values["zero_reduce_bucket"]),
        "allgather_partitions": True,
        "allgather_bucket_size": int(values["zero_allgather_bucket"]),
        "reduce_scatter": True,
        "round_robin_gradients": False,
    }
    if stage >= 2:
        zero["offload_optimizer"] = _offload(values["offload_optimizer"])
    if stage == 3:
        zero["offload_param"] = _offload(values["offload_parameters"])
        zero["stage3_prefetch_bucket_size"] = int(values["zero_prefetch_bucket"])
        zero["stage3_param_persistence_threshold"] = PERSISTENT
        zero["stage3_max_live_parameters"] = LIVE
        zero["stage3_max_reuse_distance"] = LIVE
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "communication_data_type": str(values["reduce_precision"]),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        "steps_per_print": 2**31 - 1,
    }


def _offload(place: KnobValue) -> dict[str, Any]:
    """Returns an offload section for device ``place``; pinned memory lets copies overlap the computation."""
    return {"device": "none"} if place == "none" else {"device": str(place), "pin_memory": True}
