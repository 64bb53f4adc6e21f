"""DeepSpeed's configuration, whichever framework is given it: from our knobs, and back from a user's own. Pure.

What we write is explicit, so that another DeepSpeed's defaults change nothing; ``"auto"`` stands only where
transformers fills in what the trainer's keys say already. It refuses a value that differs from the trainer's
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
"""Knob -> place."""


_FROM_KNOBS: frozenset[tuple[str, ...]] = frozenset(
    {
        *(("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",)),
        *(("bf16", "enabled"), ("fp16", "enabled")),
    }
)
"""Places that say again what the batch and precision knobs say."""


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
"""Place -> the trainer's keys, in the order that DeepSpeed has their values in."""
_OF_THE_SCHEDULE = (("scheduler", "params", "total_num_steps"), ("scheduler", "params", "warmup_num_steps"))
"""Numbers of steps, which a trial has fewer of."""
_STEPS = "a trial has another number of steps; write auto"


CPU_BUCKET = 10_000_000
"""Elements of an unset bucket on a CPU: DeepSpeed's own 500,000,000 reserve 2 GB each, whatever the model's size,
which the limit on a process's memory counts although they are never touched."""
PERSISTENT = 100_000
"""Elements below which ZeRO-3 keeps a weight whole on every rank; DeepSpeed's default."""
LIVE = 1_000_000_000
"""Weights ZeRO-3 keeps gathered, in elements, and how soon one must be needed again to stay; DeepSpeed's defaults."""

_BUCKETS = ("zero_reduce_bucket", "zero_allgather_bucket", "zero_prefetch_bucket")


def at(settings: Any, place: tuple[str, ...]) -> Any:
    """The value at a place; ``None`` if there is none."""
    for name in place:
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings


def said(settings: Any) -> dict[str, Any]:
    """Knob -> what ``settings`` say of it, as it stands there; neither null nor ``AUTO`` says anything."""
    found = {knob: at(settings, place) for knob, place in PLACES.items()}
    return {knob: value for knob, value in found.items() if value is not None and value != AUTO}


def whole(value: Any) -> Any:
    """A whole float (``5e8``) as the number it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def zero_knobs(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """The knobs of the key ``deepspeed``; what is ``auto`` is left out, the framework then chooses.

    Raises:
        KnobKeyError: a value no knob has.
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
    for knob, value in said(settings).items():
        found[knob] = parsed(knob, ".".join(("deepspeed", *PLACES[knob])), plain_word(value))
    return found


def zero_rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's configuration without knobs and settings that follow from knobs; ``auto`` stays."""
    return without(settings, {PLACES[knob] for knob in said(settings)} | _FROM_KNOBS)


def beside_zero(ours: Mapping[str, Any], own: Mapping[str, Any], acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """DeepSpeed's configuration ``ours`` merged with the user's ``own``; knobs with an effect keep our value."""
    return merged(ours, without(own, {path for knob, path in PLACES.items() if knob in acts}))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``under`` with ``over`` in it, mapping by mapping."""
    found = dict(under)
    for key, value in over.items():
        there = found.get(key)
        both = isinstance(there, Mapping) and isinstance(value, Mapping)
        found[key] = merged(there, value) if both else value  # type: ignore[arg-type]
    return found


def leaves(settings: Mapping[str, Any], here: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(Place, value) of everything in ``settings`` that is no mapping itself."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*here, name))
        else:
            yield (*here, name), value


def plain_word(value: Any) -> Any:
    """Words and whole floats (``5e8``) as DeepSpeed takes them."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return whole(value)


def without(
    settings: Mapping[str, Any], paths: Collection[tuple[str, ...]], here: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``settings`` without ``paths``, and without mappings that are empty then."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        place = (*here, name)
        if place in paths:
            continue
        inner = without(value, paths, place) if isinstance(value, Mapping) else value
        if inner or not isinstance(value, Mapping):
            found[name] = inner
    return found


def said_otherwise(
    settings: Any, keys: Mapping[str, Any], unset: Mapping[str, Any], processes: int
) -> Iterator[tuple[str, str]]:
    """(Place with dots, what is wrong with it) of every value that is not the trainer's.

    Args:
        settings: DeepSpeed's configuration.
        keys: the trainer's, as the user has them.
        unset: their values where the user says nothing; a key that is in neither is not compared.
    """
    known = {**unset, **{key: value for key, value in keys.items() if value is not None}}
    for place, names in _SAID_TWICE.items():
        value = at(settings, place)
        if value in (None, AUTO) or not all(name in known for name in names):
            continue
        own = known[names[0]] if len(names) == 1 else [known[name] for name in names]
        if value != own:
            yield ".".join(place), _differs(value, f"{' and '.join(names)} {_shown(own)}")
    rows = at(settings, ("train_batch_size",))
    if rows not in (None, AUTO) and _MICRO in known and _ACCUMULATION in known:
        own = known[_MICRO] * known[_ACCUMULATION] * processes
        if rows != own:
            count = f"{processes} process{'es' if processes > 1 else ''}"
            product = f"{_MICRO} {known[_MICRO]} x {_ACCUMULATION} {known[_ACCUMULATION]} x {count}"
            yield "train_batch_size", _differs(rows, f"{product} = {own}")
    for place in _OF_THE_SCHEDULE:
        if at(settings, place) not in (None, AUTO):
            yield ".".join(place), f"{_shown(at(settings, place))}: {_STEPS}"


def batch_unset(framework: str) -> dict[str, KnobValue]:
    """``framework``'s own values of the batch keys."""
    own = defaults(framework)
    return {_MICRO: own["micro_batch_size"], _ACCUMULATION: own.get("gradient_accumulation_steps", 1)}


def _differs(value: Any, own: str) -> str:
    return f"{_shown(value)} here and {own} differ, which transformers refuses; write auto"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else show(value)


def deepspeed_config(configuration: Mapping[str, KnobValue], device: str) -> dict[str, Any]:
    """The ``deepspeed`` argument of ``GRPOConfig``; empty where ZeRO is off (``zero_stage`` 0 is plain DDP).

    Args:
        configuration: knobs; those that do not act at this stage are left out.
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
    """Pinned memory is what copies beside the computation need."""
    return {"device": "none"} if place == "none" else {"device": str(place), "pin_memory": True}
