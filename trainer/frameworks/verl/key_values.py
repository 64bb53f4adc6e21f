"""verl's overrides as our knobs. Pure; ``keys`` is the way there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from search_spaces.batch import MODEL_PARALLEL, model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from search_spaces.knobs.rollout import UNLIMITED
from trainer.frameworks.common.speculation import speculative_knobs
from trainer.frameworks.common.values import KnobKeyError, count_of, parsed
from trainer.frameworks.verl import key_tables as tables
from trainer.frameworks.verl import megatron

VERLS_BATCH: Mapping[str, int] = {
    tables.PROMPTS_PER_ROLLOUT: 1024,
    tables.PROMPTS_PER_UPDATE: 256,
    tables.NATIVE["num_generations"]: 1,
}
"""Batch defaults of verl 0.9.1."""
BATCH = frozenset({*VERLS_BATCH, tables.NATIVE["micro_batch_size"], tables.NATIVE["sequence_parallel_size"]})
"""Keys that are right or wrong together."""
ENGINES = {"vllm": "vllm", "sglang": "sglang"}
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ON_THE_HOST = frozenset({"rollout_offload_model", "rollout_offload_optimizer"})
"""Knobs that verl sets to false if FSDP2 keeps everything on the host (``fsdp/transformer_impl.py:440``)."""
_FOLLOWING = frozenset(key for keys in tables.BESIDE.values() for key in keys if key.startswith(tables.REFERENCE))


def from_keys(keys: Mapping[str, Any], gpus: int) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` set, with the whole batch; keys that are no knobs are ignored.

    Args:
        keys: dotted key -> value, after ``flattened``.
        gpus: training GPUs on all nodes.

    Raises:
        KnobKeyError: naming the key and what was expected.
    """
    found: dict[str, KnobValue] = {}
    other = megatron.chosen(keys)
    for knob, key in tables.NATIVE.items():
        if other and (key in megatron.NOT_READ or knob in megatron.ELSEWHERE):
            continue
        name, value = _agreed(keys, knob, key)
        if value is not None:
            found[knob] = parsed(knob, name, _native(knob, name, value))
    found.update(_captured(keys))
    found.update(_precisions(keys))
    found.update(_choices(keys))
    if other:
        found.update(megatron.knobs_of(keys))
    else:
        found.update(_optimizer(keys))
        found.update(_padding(keys))
    found.update(speculative_knobs(keys.get(tables.GUESSES), tables.GUESSES))
    if found.get("fsdp") == "fsdp2" and found.get("fsdp_offload") is True:
        for knob in _ON_THE_HOST & found.keys():
            found[knob] = False
    return {**found, **_batch(keys, found, gpus)}


def rest(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` without knobs."""
    apart = {tables.APART_NODES, tables.APART_GPUS} if keys.get(tables.MODE) == "separate_async" else set()
    known = megatron.rest(keys) if megatron.chosen(keys) else {k: v for k, v in keys.items() if k not in tables.KEYS}
    found = {key: value for key, value in known.items() if key not in apart}
    guesses = keys.get(tables.GUESSES)
    return {**found, tables.GUESSES: guesses} if guesses and not speculative_knobs(guesses, tables.GUESSES) else found


def flattened(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``keys`` with the mappings of knobs split into dotted keys, one for each knob.

    An interpolation among the knobs' keys means that one knob follows another, as an unset knob does.
    """
    found: dict[str, Any] = {}
    for key, value in keys.items():
        whole = next((one for one in tables.WHOLE if key.startswith(f"{one}.")), "")
        if whole:
            found[whole] = {**(found.get(whole) or {}), key.removeprefix(f"{whole}."): value}
            continue
        names = tables.KEYS | megatron.MEGATRON_KEYS
        inside = (
            isinstance(value, Mapping)
            and any(known.startswith(f"{key}.") for known in names)
            and key not in tables.WHOLE
        )
        if inside:
            found.update(flattened({f"{key}.{name}": item for name, item in value.items()}))
        elif key in tables.WHOLE and isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = {**found[key], **value}  # as Hydra adds one to the other
        elif not (key in names and isinstance(value, str) and value.startswith("${")):
            found[key] = value
    return found


def _agreed(keys: Mapping[str, Any], knob: str, key: str) -> tuple[str, Any]:
    """Returns the key that gives the value, and the value: ``key`` or a related key, except the reference model's."""
    given = {name: keys[name] for name in (key, *tables.BESIDE.get(knob, ())) if keys.get(name) is not None}
    own = {name: value for name, value in given.items() if name not in _FOLLOWING}
    if knob == "sequence_parallel_size" and own.get(tables.BESIDE[knob][0]) == 1:
        own.pop(tables.BESIDE[knob][0])  # verl then leaves the other as it is
    values = list(own.items())
    if any(value != values[0][1] for _, value in values):
        text = ", ".join(f"{name} {show(value)}" for name, value in own.items())
        raise KnobKeyError(list(own)[-1], f"verl takes these for one thing, and they differ: {text}")
    if values:
        return values[0]
    return key, 1 if knob == "sequence_parallel_size" and given else None


def _native(knob: str, key: str, value: Any) -> Any:
    if knob == "custom_all_reduce":
        if not isinstance(value, bool):
            raise KnobKeyError(key, f"expected true or false, got {show(value)}")
        return not value
    if knob == "vllm_compile_mode" and isinstance(value, str):
        return value.lower()
    if knob == "gpu_memory_utilization" or not (isinstance(value, float) and value.is_integer()):
        return value
    return int(value)


def _captured(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    sizes = keys.get(tables.CAPTURED)
    if sizes is None:
        return {}
    if not isinstance(sizes, list) or not sizes or not all(isinstance(size, int) for size in sizes):
        raise KnobKeyError(tables.CAPTURED, f"expected a list of whole numbers, got {show(sizes)}")
    return {"cuda_graph_max_batch": parsed("cuda_graph_max_batch", tables.CAPTURED, max(sizes))}


def _precisions(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    found: dict[str, KnobValue] = {}
    places = {
        "precision": f"{tables.MIXED}.param_dtype",
        "reduce_precision": f"{tables.MIXED}.reduce_dtype",
        "master_weights": tables.MASTER,
        "rollout_dtype": tables.DTYPE,
    }
    for knob, key in places.items():
        value = keys.get(key)
        if value is not None:
            found[knob] = parsed(knob, key, _NAMES.get(str(value), value))
    buffers = keys.get(f"{tables.MIXED}.buffer_dtype", "fp32")
    if _NAMES.get(str(buffers), buffers) != "fp32":
        raise KnobKeyError(f"{tables.MIXED}.buffer_dtype", f"a trial keeps buffers in fp32, got {show(buffers)}")
    if found.get("precision", "bf16") not in tables.PRECISIONS:
        text = show(keys[places["precision"]])
        raise KnobKeyError(places["precision"], f"expected one of {', '.join(tables.PRECISIONS)}, got {text}")
    return found


def _optimizer(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    if not any(key in keys for key in (tables.IMPL, tables.OPTIMIZER, tables.OPTIONS)):
        return {}
    given = (
        keys.get(tables.IMPL, "torch.optim"),
        keys.get(tables.OPTIMIZER, "AdamW"),
        keys.get(tables.OPTIONS) or None,
    )
    for name, settings in tables.OPTIMIZERS.items():
        if given == settings:
            return {"optimizer": name}
    impl, optimizer, options = given
    text = f"{impl}.{optimizer}" + (f" with {options}" if options else "")
    known = ", ".join(sorted({f"{impl}.{name}" for impl, name, _ in tables.OPTIMIZERS.values()}))
    named = next(key for key in (tables.OPTIMIZER, tables.IMPL, tables.OPTIONS) if key in keys)
    raise KnobKeyError(named, f"a trial knows {known}, got {show(text)}")


def _choices(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    found: dict[str, KnobValue] = {}
    if keys.get(tables.STRATEGY) not in (None, megatron.WORD):
        strategies = {word: name for name, word in tables.STRATEGIES.items()}
        found["fsdp"] = _one_of(keys, tables.STRATEGY, strategies, "a trial shards with FSDP")
    if keys.get(tables.NAME) is not None:
        found["rollout_engine"] = _one_of(keys, tables.NAME, ENGINES, "verl's vLLM and SGLang are known")
    found.update(_mode(keys))
    if tables.QUANTIZATION in keys:
        value = keys[tables.QUANTIZATION]
        found["rollout_quantization"] = (
            "none"
            if value is None
            else _one_of(
                keys, tables.QUANTIZATION, {"fp8": "fp8", "none": "none"}, "a trial quantizes a rollout to fp8"
            )
        )
    for key in (tables.FREE_CACHE, tables.SLEEP_MODE):
        if keys.get(key) is not None and not isinstance(keys[key], bool):
            raise KnobKeyError(key, f"expected true or false, got {show(keys[key])}")
    if tables.FREE_CACHE in keys or tables.SLEEP_MODE in keys:
        found["sleep_level"] = 2 if keys.get(tables.FREE_CACHE, True) and keys.get(tables.SLEEP_MODE, True) else 0
    return found


def _mode(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the rollout mode and engine knobs: place and time of generation, and the GPUs used for it."""
    found: dict[str, KnobValue] = {}
    if tables.STALENESS in keys:
        limit = keys[tables.STALENESS]
        found["staleness_limit"] = UNLIMITED if limit is None else parsed("staleness_limit", tables.STALENESS, limit)
    if keys.get(tables.MODE) is None:
        return found
    word = _one_of(keys, tables.MODE, {mode: mode for mode in tables.MODES}, "verl has these modes")
    found["rollout_mode"], found["async_generation"] = tables.MODES[word]
    if word == "separate_async":
        each = keys.get(tables.APART_GPUS)
        if each is None or isinstance(each, str):
            raise KnobKeyError(
                tables.MODE, f"{word} generates on GPUs of its own; say how many with {tables.APART_GPUS}"
            )
        nodes, gpus = (count_of(key, keys.get(key, 0), 65536) for key in (tables.APART_NODES, tables.APART_GPUS))
        found["rollout_gpus"] = nodes * gpus
    return found


def _one_of(keys: Mapping[str, Any], key: str, known: Mapping[str, str], why: str) -> str:
    value = keys[key]
    if not isinstance(value, str) or value not in known:
        raise KnobKeyError(key, f"{why}: expected {' or '.join(known)}, got {show(value)}")
    return known[value]


def _padding(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    named = tables.PADDED if tables.PADDED in keys else tables.FSDP + "pad_to_length"
    padded = keys.get(named)
    if padded is None:
        return {}
    if not isinstance(padded, bool):
        raise KnobKeyError(named, f"expected true or false, got {show(padded)}")
    bucket = keys.get(tables.BUCKET, 1024) if padded else 1
    return {"pad_to_multiple": parsed("pad_to_multiple", tables.BUCKET, bucket)}


def _uneven(keys: Mapping[str, Any], found: Mapping[str, KnobValue], gpus: int) -> KnobKeyError:
    """Builds the error on sizes that do not divide ``gpus``, at a key that sets one of them."""
    together, key = model_parallel(found), tables.NATIVE["sequence_parallel_size"]
    if found.get("training_engine") != megatron.WORD:
        key = next((beside for beside in tables.BESIDE["sequence_parallel_size"] if key not in keys), key)
        return KnobKeyError(key, f"{together} GPUs cannot share a sequence evenly on {gpus} GPUs")
    own = {**megatron.OWN, **megatron.ELSEWHERE}
    said = [name for name in (*MODEL_PARALLEL[1:], MODEL_PARALLEL[0]) if found.get(name, 1) != 1]
    sizes = " × ".join(f"{own[name].rpartition('.')[2]} {found[name]}" for name in said)
    of = f" ({sizes})" if len(said) > 1 else ""
    return KnobKeyError(own[said[0]], f"{together} GPUs{of} cannot hold a model evenly on {gpus} GPUs")


def _batch(keys: Mapping[str, Any], found: Mapping[str, KnobValue], gpus: int) -> dict[str, KnobValue]:
    """Returns the four batch knobs by verl's own rules, which count prompts over the data-parallel ranks."""
    together = model_parallel(found)
    if gpus % together:
        raise _uneven(keys, found, gpus)
    ranks, sizes = (
        gpus // together,
        {key: count_of(key, keys.get(key, own), 2**31 - 1) for key, own in VERLS_BATCH.items()},
    )
    group = sizes[tables.NATIVE["num_generations"]]
    update, rollout = (sizes[key] * group for key in (tables.PROMPTS_PER_UPDATE, tables.PROMPTS_PER_ROLLOUT))
    if update % ranks:
        step = ranks // math.gcd(ranks, group)
        near = [
            step * n
            for n in (sizes[tables.PROMPTS_PER_UPDATE] // step, sizes[tables.PROMPTS_PER_UPDATE] // step + 1)
            if n
        ]
        text = f"{update} rows of an update cannot be shared by {ranks} ranks ({gpus} GPUs)"
        raise KnobKeyError(tables.PROMPTS_PER_UPDATE, f"{text}; nearest: {' or '.join(map(str, near))} prompts")
    if rollout < update:
        prompts, updated = (sizes[key] for key in (tables.PROMPTS_PER_ROLLOUT, tables.PROMPTS_PER_UPDATE))
        said = f"{prompts} is less than {tables.PROMPTS_PER_UPDATE} {updated}, and verl takes no fewer"
        raise KnobKeyError(tables.PROMPTS_PER_ROLLOUT, f"{said}; nearest: {tables.PROMPTS_PER_UPDATE} {prompts}")
    micro = int(found.get("micro_batch_size", 0))
    if not micro and found.get("dynamic_batching") is not True:
        raise KnobKeyError(tables.NATIVE["micro_batch_size"], "verl has no default for it; set it")
    if found.get("dynamic_batching") is True and (not micro or update // ranks % micro or rollout // ranks % micro):
        if rollout % ranks:
            text = f"{rollout} rows of a rollout cannot be shared by {ranks} ranks ({gpus} GPUs)"
            raise KnobKeyError(tables.PROMPTS_PER_ROLLOUT, text)
        micro = math.gcd(update // ranks, rollout // ranks)  # nothing is cut by rows
    for key, rows in ((tables.PROMPTS_PER_UPDATE, update), (tables.PROMPTS_PER_ROLLOUT, rollout)):
        if rows % (ranks * micro):
            largest = max(n for n in range(1, micro + 1) if update // ranks % n == 0 and rollout // ranks % n == 0)
            text = f"{rows} rows are no whole micro-batches of {micro} rows on {ranks} ranks"
            raise KnobKeyError(key, f"{text}; nearest: {tables.NATIVE['micro_batch_size']} {largest}")
    return {
        "micro_batch_size": micro,
        "num_generations": group,
        "gradient_accumulation_steps": update // (ranks * micro),
        "steps_per_generation": rollout // (ranks * micro),
    }


OLD: Mapping[str, str] = {
    tables.ACTOR + "ppo_micro_batch_size": tables.NATIVE["micro_batch_size"],
    "actor_rollout_ref.rollout.log_prob_micro_batch_size": tables.NATIVE["logprob_rows"],
    tables.REFERENCE + "log_prob_micro_batch_size": tables.REFERENCE + "log_prob_micro_batch_size_per_gpu",
}
"""Key of rows over all GPUs, which verl 0.9.1 refuses or fails on (``engine_workers.py:636``) -> key to use instead."""
