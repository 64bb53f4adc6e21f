"""Converts knobs to keys that transformers' trainers share in several frameworks, and back. Pure.

Defaults differ; each framework's own ``keys`` holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.values import KnobKeyError


class KeyHandling(StrEnum):
    """Handling of a key of a user's configuration."""

    KNOB = "knob"
    """A knob: the key's value is the baseline's, and the search may change it."""
    INPUT = "input"
    """Model, prompts, rewards and completion length, which are fields of the study's workload."""
    MEASURING = "measuring"
    """Ignored or replaced in trials, kept in exports; does not affect speed or memory."""
    WORKLOAD = "workload"
    """Passed to every trial unchanged, except knobs inside a mapping."""
    REFUSED = "refused"
    """No trial honours the key: a value with an effect is refused, any other is ignored."""


MEASURING = frozenset(
    {
        *("output_dir", "num_train_epochs", "max_steps", "do_train", "seed", "use_cpu"),
        *("logging_strategy", "logging_steps", "logging_first_step", "log_level", "log_completions"),
        *("disable_tqdm", "report_to", "run_name"),
        *("do_eval", "eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "per_device_eval_batch_size"),
        *("save_strategy", "save_steps", "save_total_limit", "save_only_model", "load_best_model_at_end"),
        *("push_to_hub", "hub_model_id", "hub_strategy", "hub_private_repo", "hub_always_push"),
    }
)
"""Keys of transformers' trainers and of TRL, in all versions, on duration, logging, evaluation and saving."""


def uncompiled(keys: Mapping[str, Any], configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns ``keys``, without ``torch_compile_backend`` if compilation is off: the key alone would turn it on."""
    off = configuration.get("torch_compile") is False
    return {key: value for key, value in keys.items() if not (off and key == "torch_compile_backend")}


def without(passthrough: Mapping[str, Any], *left_out: Collection[str]) -> dict[str, Any]:
    """Returns ``passthrough`` without the keys in ``left_out``."""
    return {key: value for key, value in passthrough.items() if not any(key in keys for keys in left_out)}


DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16"}
"""``master_weights`` -> torch's name."""

LEARNING: Mapping[str, Any] = {
    "epsilon": 0.2,
    "num_iterations": 1,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "learning_rate": 1e-6,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}
"""Defaults of the objective in every TRL from 0.18 to 1.16."""


def unsettable(
    acts: Mapping[str, KnobValue], framework: str, title: str, trial: str, precisions: tuple[str, ...]
) -> list[str]:
    """Returns a sentence for each value among ``acts`` that no trial can set."""
    unset = defaults(framework)
    precision, master = (acts.get(name, unset[name]) for name in ("precision", "master_weights"))
    said, engine, known = [], acts.get("rollout_engine"), facts_of(framework).generates_with
    if engine not in (None, *known):
        said.append(f"rollout_engine {engine}: {title} generates with {' or '.join(known)}")
    if precision not in precisions:
        said.append(f"precision {precision}: {trial} computes in {', '.join(precisions)}")
    if master not in DTYPES:
        said.append(f"master_weights {master}: {trial} holds weights in {' or '.join(DTYPES)}")
    elif master == "bf16" and precision not in ("bf16", "fp8"):
        said.append(f"precision {precision} with master_weights bf16: weights would be rounded below what is computed")
    for name in ("offload_optimizer", "offload_parameters"):
        if acts.get(name) == "nvme":
            said.append(f"{name} nvme: {trial} offloads to cpu")
    if acts.get("reduce_precision", "fp32") != "fp32" and not acts.get("zero_stage"):
        said.append(f"reduce_precision {show(acts['reduce_precision'])}: only DeepSpeed has it, and zero_stage is 0")
    return said


def refuse(sentences: list[str]) -> None:
    """Raises ``ValueError`` with all ``sentences`` if there are any."""
    if sentences:
        raise ValueError("; ".join(sentences))


def all_knobs(
    read: Callable[[Mapping[str, Any]], dict[str, KnobValue]],
    keys: Mapping[str, Any],
    report_error: Callable[[KnobKeyError], None],
    together: Collection[str] = (),
) -> dict[str, KnobValue]:
    """Returns the knobs of all readable ``keys``; calls ``report_error`` for each key that cannot be read.

    Args:
        together: keys that are valid only together; after a fault of one the reading ends.
    """
    left = dict(keys)
    while True:
        try:
            return read(left)
        except KnobKeyError as error:
            key = error.key if error.key in keys else error.key.partition(".")[0]
            if key in keys.keys() - left.keys():  # it is told; its default is nobody's mistake
                return {}
            report_error(error)
            if left.pop(key, None) is None or key in together:
                return {}


def micro_batches(rows: Any, micro: int, processes: int) -> int:
    """Converts ``rows``, the value of ``generation_batch_size``, to micro-batches per process.

    Raises KnobKeyError unless ``rows`` is a multiple of ``micro`` (rows of a micro-batch) times ``processes``.
    """
    each = micro * processes
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1 or rows % each:
        size = f"per_device_train_batch_size {micro}" + (f" x {processes} processes" if processes > 1 else "")
        raise KnobKeyError("generation_batch_size", f"expected a multiple of {each} ({size}), got {show(rows)}")
    return rows // each


def weights_held(key: str, value: Any, names: Mapping[str, str]) -> str:
    """Returns ``master_weights`` for ``key``, which names torch's type; ``names`` is the knob's value -> torch's name.

    Raises KnobKeyError for a type in which no trial can store weights.
    """
    for precision, name in names.items():
        if value == name:
            return precision
    raise KnobKeyError(key, f"a trial holds weights in {' or '.join(names.values())}, got {show(value)}")


def compiles(keys: Mapping[str, Any]) -> bool:
    """Tells whether a mode or a backend alone enables compilation, as in ``TrainingArguments``."""
    return any(keys.get(key) is not None for key in ("torch_compile_mode", "torch_compile_backend"))
