"""Converts arguments of Megatron-SWIFT (``megatron rlhf``) to knobs, and back. Pure.

ms-swift 4.6 reads them in ``swift/megatron/arguments/megatron_args.py``. It counts completions: ``global_batch_size``
is the number of completions of an update, and ``steps_per_generation`` counts updates, not micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, key_of
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.megatron import ENGINE
from search_spaces.legality.megatron_rules import SWIFT_TORCH_ONLY, TORCH_ONLY
from trainer.frameworks.common.values import KnobKeyError, count_of, parsed, uneven
from trainer.frameworks.ms_swift.keys import (
    ALL_REDUCE,
    ENGINE_KEY,
    FRAMEWORK,
    NATIVE,
    OF_MEGATRON,
    SERVERS_GUESSES,
    engine_of,
    precision_of,
)
from trainer.frameworks.ms_swift.keys import rest as engine_rest

WORD = "megatron"
PREFIX = "megatron."
"""Prefix of Megatron-SWIFT's arguments among the fields of the installed ms-swift."""
SHARE, ON_HOST = "optimizer_offload_fraction", "optimizer_cpu_offload"
"""Offloaded share of the optimizer and its switch; the share counts only with the switch on, and is 1 by default."""
_SHARE_KNOB = "optimizer_offload_share"
SELECTIVE = "selective"
"""Default of ``recompute_granularity``."""
ROWS, STEPS, WHOLE = "global_batch_size", "steps_per_generation", "generation_batch_size"
TORCH = frozenset(
    name for name, knob in KNOBS.items() if {name, *knob.needs} & {*TORCH_ONLY, *SWIFT_TORCH_ONLY, "zero_stage"}
)
"""Knobs without an effect under Megatron; their arguments pass through."""
OWN: Mapping[str, str] = {name: key_of(name, FRAMEWORK) for name in OF_MEGATRON if name != _SHARE_KNOB}
"""Knob that acts under Megatron alone -> argument."""
ELSEWHERE: Mapping[str, str] = {
    "micro_batch_size": "micro_batch_size",
    "sequence_parallel_size": "context_parallel_size",
}
"""Knob whose argument differs in ``swift rlhf`` -> argument."""
ARGUMENTS: Mapping[str, str] = {
    **{name: key for name, key in NATIVE.items() if name not in TORCH},
    **OWN,
    **ELSEWHERE,
}
"""Knob -> argument with the same value."""
NULL: Mapping[str, KnobValue] = {
    "recompute_method": "none",
    **dict.fromkeys(("first_stage_layers", "last_stage_layers", "recompute_layers"), 0),
}
"""Knob -> value that is written as no argument."""
UNSET: Mapping[str, KnobValue] = {"rollout_engine": "vllm", "remove_padding": True, "dataloader_workers": 4}
"""Knob -> Megatron-SWIFT's default, where it differs from ``swift rlhf``."""
SERVERS = frozenset({NATIVE["rollout_data_parallel_size"], ALL_REDUCE, SERVERS_GUESSES})
"""Arguments of ``swift rollout`` that ``megatron rlhf`` does not take."""
KEYS = frozenset(
    {*ARGUMENTS.values(), ROWS, STEPS, WHOLE, SHARE, ON_HOST, ALL_REDUCE, SERVERS_GUESSES, "bf16", "fp16", "use_vllm"}
)
"""Arguments that hold knobs."""
MARKS = frozenset({*OWN.values(), *ELSEWHERE.values(), ROWS, SHARE, ON_HOST})
"""Arguments that ``swift rlhf`` does not have: a file with one of them is Megatron-SWIFT's."""
_NOW = "it is now "
GONE: Mapping[str, str] = {
    **{key: _NOW + new for key, new in (("max_epochs", "num_train_epochs"), ("log_interval", "logging_steps"))},
    **{key: _NOW + new for key, new in (("eval_interval", "eval_steps"), ("save_interval", "save_steps"))},
    **{key: _NOW + new for key, new in (("num_workers", "dataloader_num_workers"), ("save", "output_dir"))},
    "load_safetensors": "weights are always loaded so; remove it",
    "load": "give the model itself, as model",
}
"""Removed argument -> replacement."""
_MCORE = "a trial begins with the model itself; give it as model"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("mcore_model", "mcore_adapter", "mcore_ref_model", "mcore_ref_adapter"), _MCORE),
    **dict.fromkeys(("async_generate", "sync_ref_model"), "Megatron-SWIFT refuses it for GRPO; remove it"),
    "num_iterations": "Megatron-SWIFT trains once on a completion; expected 1",
    "pipeline_model_parallel_layout": "a layout of stages is not read; use decoder_*_pipeline_num_layers",
    "use_megatron_fsdp": "Megatron-FSDP shares a model out in a way of its own, which is not read; remove it",
}
"""Argument -> reason of the refusal, for a value with an effect."""


def chosen(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether the configuration trains with Megatron."""
    return configuration.get(ENGINE) == WORD


def refusal(key: str, value: Any) -> str | None:
    """Returns the reason why a run of Megatron-SWIFT with ``key`` is refused; ``None`` if it is accepted."""
    rests = value in (None, False) or (key == "num_iterations" and value == 1)
    return None if rests else REFUSED.get(key)


def from_keys(keys: Mapping[str, Any], processes: int = 1) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` set, as TRL's ``from_keys``; ``processes`` converts rows to micro-batches."""
    given = {key: value for key, value in keys.items() if value is not None}
    found: dict[str, KnobValue] = {**UNSET, ENGINE: WORD}
    found.update({knob: parsed(knob, key, given[key]) for knob, key in ARGUMENTS.items() if key in given})
    for knob in ("recompute_method", "recompute_layers"):  # megatron_args.py:849, and Megatron-Core's own check
        if found.get(knob, NULL[knob]) != NULL[knob] and found.get("recompute_granularity", SELECTIVE) == SELECTIVE:
            raise KnobKeyError(OWN[knob], "it goes with recompute_granularity full, and this is selective; remove it")
    if ON_HOST in given:
        share = given.get(SHARE, 1.0) if given[ON_HOST] else 0.0
        found[_SHARE_KNOB] = parsed(_SHARE_KNOB, SHARE, share)
    if "muon" in str(given.get("optimizer")):
        found["distributed_optimizer"] = False  # whatever it is told (megatron_args.py:1032)
    dtype = given.get("torch_dtype")
    found.update(precision_of(given, "float32" if dtype == "float16" else dtype))
    found.update(engine_of(given))
    return {**found, **_batch(given, found, processes)}


def _batch(keys: Mapping[str, Any], knobs: Mapping[str, KnobValue], processes: int) -> dict[str, KnobValue]:
    """Returns the batch in micro-batches, by ms-swift's own rules (megatron_args.py:258 to 295 and 1000 to 1013)."""
    together = model_parallel(knobs)
    if processes % together:
        raise uneven(knobs, ARGUMENTS, processes)
    ranks, micro = max(1, processes // together), int(knobs.get("micro_batch_size", 1))
    rows, count = count_of(ROWS, keys.get(ROWS, 16)), count_of(STEPS, keys.get(STEPS, 1))
    if rows % (micro * ranks):
        text = f"{rows} rows are no whole micro-batches of {micro} rows on {ranks} data-parallel ranks"
        raise KnobKeyError(ROWS, f"{text}; expected a multiple of {micro * ranks}")
    if WHOLE in keys:
        whole = count_of(WHOLE, keys[WHOLE])
        if whole % rows or (STEPS in keys and whole != rows * count):
            expected = f"{rows * count} ({ROWS} {rows} x {STEPS} {count})" if STEPS in keys else f"a multiple of {rows}"
            raise KnobKeyError(WHOLE, f"expected {expected}, got {whole}")
        count = whole // rows
    accumulation = rows // (micro * ranks)
    return {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation * count,
    }


def unwritable(acts: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that ``megatron rlhf`` has no argument for."""
    said = []
    if acts.get("precision", "bf16") not in ("bf16", "fp16"):
        said.append(f"precision {acts['precision']}: Megatron-SWIFT computes in bf16 or fp16")
    if acts.get("rollout_engine", "vllm") != "vllm":
        said.append(f"rollout_engine {acts['rollout_engine']}: Megatron-SWIFT generates with vllm only")
    return said


def arguments_of(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns Megatron's arguments for ``acts``, without the rows (``rows``) and the engine's."""
    found: dict[str, Any] = {
        key: acts[knob] for knob, key in ARGUMENTS.items() if knob in acts and acts[knob] != NULL.get(knob)
    }
    if "precision" in acts:
        found["bf16"], found["fp16"] = acts["precision"] == "bf16", acts["precision"] == "fp16"
    if _SHARE_KNOB in acts:
        share = float(acts[_SHARE_KNOB])
        found.update({ON_HOST: True, SHARE: share} if share else {ON_HOST: False})
    return found


def rows(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> dict[str, int]:
    """Returns the arguments for the completions of an update and of a generation.

    Args:
        configuration: knobs; without an accumulation an update has ``rows_per_update``.
        rows_per_update: completions.
        ranks: data-parallel processes.

    Raises:
        ValueError: a generation does not serve whole updates.
    """
    micro = int(configuration.get("micro_batch_size", 1))
    accumulation = int(configuration.get("gradient_accumulation_steps", max(1, rows_per_update // (micro * ranks))))
    steps = configuration.get("steps_per_generation", ACCUMULATION)
    count, left = (1, 0) if isinstance(steps, str) else divmod(int(steps), accumulation)
    if left or count < 1:
        text = f"steps_per_generation {steps} is no multiple of gradient_accumulation_steps {accumulation}"
        raise ValueError(f"{text}: a generation of Megatron-SWIFT serves whole updates")
    return {ROWS: micro * accumulation * ranks, STEPS: count}


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs."""
    engine = engine_rest({key: keys[key] for key in (ENGINE_KEY, SERVERS_GUESSES, "vllm_mode") if key in keys})
    known = KEYS | {ENGINE_KEY} if keys.get(ON_HOST) else (KEYS | {ENGINE_KEY}) - {SHARE}  # which does nothing then
    return {**{key: value for key, value in keys.items() if key not in known}, **engine}
