"""Settings that DeepSpeed's configuration repeats from the trainer's keys; they must agree. Pure.

transformers fills in what is ``auto``, and refuses a value that differs from the trainer's
(``integrations/deepspeed.py:129-189`` of 5.17, as of 4.52: ``trainer_config_process``, ``trainer_config_finalize``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.deepspeed_places import AUTO, at

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
