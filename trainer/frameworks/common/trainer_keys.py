"""Keys that transformers' trainers have under one name in several frameworks, read as knobs. Pure.

What a key means where it is not given differs, and is told by each framework's own ``key_values``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.beyond import DTYPES
from trainer.frameworks.common.values import KnobKeyError

_ROWS = "generation_batch_size"


def all_knobs(
    read: Callable[[Mapping[str, Any]], dict[str, KnobValue]],
    keys: Mapping[str, Any],
    told: Callable[[KnobKeyError], None],
) -> dict[str, KnobValue]:
    """The knobs of ``keys`` that can be read; ``told`` hears of each key that cannot.

    Args:
        read: the framework's ``from_keys``.
        keys: values by their types.
    """
    left = dict(keys)
    while True:
        try:
            return read(left)
        except KnobKeyError as error:
            if error.key in keys.keys() - left.keys():  # it is told; its default is nobody's mistake
                return {}
            told(error)
            if left.pop(error.key.partition(".")[0], None) is None:
                return {}


def micro_batches(rows: Any, micro: int, processes: int) -> int:
    """``generation_batch_size`` in micro-batches.

    Args:
        micro: rows of a micro-batch.

    Raises:
        KnobKeyError: it is no multiple of what all processes take at once.
    """
    each = micro * processes
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1 or rows % each:
        size = f"per_device_train_batch_size {micro}" + (f" x {processes} processes" if processes > 1 else "")
        raise KnobKeyError(_ROWS, f"expected a multiple of {each} ({size}), got {show(rows)}")
    return rows // each


def steps_of(keys: Mapping[str, Any], found: Mapping[str, KnobValue], unset: int, processes: int) -> int:
    """``steps_per_generation`` by ``generation_batch_size``, which excludes the key of that name.

    Args:
        keys: ``generation_batch_size`` among them.
        found: the knobs of the other keys.
        unset: the framework's own micro-batch.

    Raises:
        KnobKeyError: both are given, or it is no multiple of what all processes take at once.
    """
    if "steps_per_generation" in found:
        raise KnobKeyError(_ROWS, "it cannot be set beside steps_per_generation; remove one of them")
    return micro_batches(keys[_ROWS], int(found.get("micro_batch_size", unset)), processes)


def trainer_knobs(
    keys: Mapping[str, Any], native: Mapping[str, KnobValue], framework: str, dtype: str, processes: int
) -> dict[str, KnobValue]:
    """The knobs of the keys that TRL's trainers read alike.

    Args:
        keys: those that are set.
        native: the knobs whose values go over as they are.
        dtype: the key that names the weights' type.
        processes: that train.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    found = dict(native)
    if "generation_batch_size" in keys:  # TRL 0.18 rounds down without a word
        found["steps_per_generation"] = steps_of(keys, found, int(defaults(framework)["micro_batch_size"]), processes)
    if compiles(keys):
        found["torch_compile"] = True
    if dtype in keys:
        found["master_weights"] = weights_held(dtype, keys[dtype], DTYPES)
    if "use_vllm" in keys:
        found["rollout_engine"] = "vllm" if keys["use_vllm"] else "transformers"
    return found


def half_precision(keys: Mapping[str, Any]) -> tuple[bool | None, bool | None]:
    """``bf16`` and ``fp16``; ``None`` where one is not given.

    Raises:
        KnobKeyError: one is no switch, or both are on.
    """
    bf16, fp16 = keys.get("bf16"), keys.get("fp16")
    for key, value in (("bf16", bf16), ("fp16", fp16)):
        if value is not None and not isinstance(value, bool):
            raise KnobKeyError(key, f"expected true or false, got {show(value)}")
    if bf16 and fp16:
        raise KnobKeyError("fp16", "bf16 and fp16 cannot both be true; remove one of them")
    return bf16, fp16


def weights_held(key: str, value: Any, names: Mapping[str, str]) -> str:
    """``master_weights`` by the key that names torch's type.

    Args:
        names: the knob's value -> torch's name.

    Raises:
        KnobKeyError: a type no trial holds weights in.
    """
    for precision, name in names.items():
        if value == name:
            return precision
    raise KnobKeyError(key, f"a trial holds weights in {' or '.join(names.values())}, got {show(value)}")


def compiles(keys: Mapping[str, Any]) -> bool:
    """Whether a mode or a backend alone has the model compiled, as in ``TrainingArguments``."""
    return any(keys.get(key) is not None for key in ("torch_compile_mode", "torch_compile_backend"))


def cache_steps(key: str, value: Any) -> Any:
    """What ``empty_cache_steps`` is parsed from: 0 stands for null, and is refused itself.

    Raises:
        KnobKeyError: it is 0.
    """
    if value is None:
        return 0
    if value == 0:
        raise KnobKeyError(key, "expected a whole number of at least 1, or null, got 0")
    return value
