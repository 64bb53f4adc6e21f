"""Converts knobs to verl's overrides, and back. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from search_spaces.knobs.model import show
from search_spaces.knobs.rollout import UNLIMITED
from search_spaces.legality.megatron_rules import TORCH_ONLY
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.values import (
    KnobKeyError,
    count_of,
    following,
    parsed,
    speculative_config,
    speculative_knobs,
    uneven,
)
from trainer.frameworks.verl import key_tables as tables
from trainer.frameworks.verl import megatron

VERLS_BATCH: Mapping[str, int] = {
    tables.PROMPTS_PER_ROLLOUT: 1024,
    tables.PROMPTS_PER_UPDATE: 256,
    tables.NATIVE["num_generations"]: 1,
}
"""Key -> verl 0.9.1's default, for keys of the batch."""
BATCH = frozenset({*VERLS_BATCH, tables.NATIVE["micro_batch_size"], tables.NATIVE["sequence_parallel_size"]})
"""Keys that are valid only together."""
ENGINES = {"vllm": "vllm", "sglang": "sglang"}
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ON_THE_HOST = frozenset({"rollout_offload_model", "rollout_offload_optimizer"})
"""Knobs that verl sets to false if FSDP2 keeps everything in host memory (``fsdp/transformer_impl.py:440``)."""
_FOLLOWING = frozenset(key for keys in tables.BESIDE.values() for key in keys if key.startswith(tables.REFERENCE))
OLD: Mapping[str, str] = {
    tables.ACTOR + "ppo_micro_batch_size": tables.NATIVE["micro_batch_size"],
    "actor_rollout_ref.rollout.log_prob_micro_batch_size": tables.NATIVE["logprob_rows"],
    tables.REFERENCE + "log_prob_micro_batch_size": tables.REFERENCE + "log_prob_micro_batch_size_per_gpu",
}
"""Key of rows over all GPUs, which verl 0.9.1 refuses or fails on (``engine_workers.py:636``) -> key to use instead."""
acting = partial(acting_in, framework="verl")
"""Returns the knobs with an effect: knobs whose needs hold, an unset knob having verl's default."""
NO_BUCKET = 1024
"""``pad_to_length_bucket`` of a run without padding: verl's default, which verl then ignores."""
_CHOICES: Mapping[str, tuple[tuple[KnobValue, ...], str]] = {
    "rollout_engine": (("vllm", "sglang"), "verl generates with vllm or sglang"),
    "sleep_level": ((0, 2), "verl's engine sleeps at level 2 or not at all"),
    "fsdp": (tuple(tables.STRATEGIES), "verl shards with fsdp1 or fsdp2"),
    "precision": (tables.PRECISIONS, f"verl computes in {', '.join(tables.PRECISIONS)}"),
    "master_weights": (tables.MASTERS, f"verl holds weights in {' or '.join(tables.MASTERS)}"),
    "reduce_precision": (("bf16", "fp32"), "verl sums gradients in bf16 or fp32"),
    "optimizer": (tuple(tables.OPTIMIZERS), f"a verl trial has {', '.join(tables.OPTIMIZERS)}"),
    "rollout_quantization": (("none", "fp8"), "a verl trial rolls out in fp8 or what the weights are in"),
}
"""Knob -> (values a trial can set, reason against other values)."""


def unwritable(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that verl has no key for."""
    acts = acting(configuration)
    said = [f"a verl trial cannot set {name}" for name in sorted(acts) if name not in tables.WRITTEN]
    if (acts.get("rollout_mode", "colocate"), bool(acts.get("async_generation", False))) not in tables.MODES.values():
        said.append("rollout_mode server: verl generates on GPUs of its own only beside training, with older weights")
    return said + [
        f"{name} {acts[name]}: {why}"
        for name, (values, why) in _CHOICES.items()
        if name in acts and acts[name] not in values
    ]


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that a verl trial cannot set; empty if a trial can run."""
    said = unwritable(configuration)
    if not said and _on_megatron(configuration):
        said.append(
            f"{tables.MODEL_ENGINE} megatron: trials of the megatron engine are not run yet; set it to dp, with FSDP"
        )
    if not said and configuration.get("rollout_engine") == "sglang":
        said.append(f"{tables.NAME} sglang: no trial has generated with SGLang yet; set it to vllm")
    if not said and acting(configuration).get("async_generation") is True:
        mode = next(word for word, meant in tables.MODES.items() if meant == (_mode(configuration), True))
        said.append(f"{tables.MODE} {mode}: no trial has run in an asynchronous mode yet; set it to sync")
    return said


def _on_megatron(configuration: Mapping[str, KnobValue]) -> bool:
    return configuration.get(ENGINE_KNOB) == megatron.WORD


def _mode(configuration: Mapping[str, KnobValue]) -> str:
    return str(configuration.get("rollout_mode", "colocate"))


def explicit(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> dict[str, KnobValue]:
    """Returns ``configuration`` with verl's defaults written out; idempotent.

    An accumulation that is not set follows from ``rows_per_update`` and the data-parallel ``ranks``. Raises ValueError
    without ``micro_batch_size``, for which verl has no default.
    """
    if "micro_batch_size" not in configuration:
        raise ValueError("verl needs a micro_batch_size: it has no default of its own")
    left = {"rollout_gpus", *(TORCH_ONLY if _on_megatron(configuration) else (ENGINE_KNOB, *tables.OF_MEGATRON))}
    found = {name: value for name, value in defaults("verl").items() if name in tables.WRITTEN and name not in left}
    found.update(configuration)
    steps = following(configuration, rows_per_update, ranks)
    if steps is not None:
        found["gradient_accumulation_steps"] = steps
    if found.get("steps_per_generation", ACCUMULATION) == ACCUMULATION:
        found["steps_per_generation"] = found["gradient_accumulation_steps"]
    if found["speculative_decoding"] == "none":  # said by nothing, for it may be done in a way of the user's own
        del found["speculative_decoding"]
    for name in ("logprob_rows", "logprob_tokens"):
        found.setdefault(name, found[KNOBS[name].frameworks["verl"].follows])
    return found


def to_keys(
    configuration: Mapping[str, KnobValue], rows_per_update: int, gpus: int, longest: int | None = None
) -> dict[str, Any]:
    """Returns verl's keys for every knob, set or not, except knobs that act by environment variables.

    The arguments are those of ``render.settings``. Raises ValueError for a knob or value that verl cannot take
    (``unsupported``), or a batch without whole groups.
    """
    refuse(unwritable(configuration))
    ranks = max(1, gpus // model_parallel(configuration))
    values = explicit(configuration, rows_per_update, ranks)
    acts, unset = acting(values), defaults("verl")
    found: dict[str, Any] = {}
    other = _on_megatron(values)
    for knob, key in tables.NATIVE.items():
        if other and (key in megatron.NOT_READ or knob in megatron.ELSEWHERE):
            continue
        rests = knob not in acts and values.get(knob) != unset.get(knob)
        if knob in values and not (rests and key.startswith(tables.ENGINE)):
            found.update(dict.fromkeys((key, *tables.BESIDE.get(knob, ())), _native(knob, values[knob])))
    if longest is not None:
        found.setdefault(tables.NATIVE["max_model_len"], longest)
    if speculative := speculative_config(acts):
        found[tables.GUESSES] = speculative
    return {
        **tables.FIXED,
        **_batch(values, ranks),
        **found,
        **(megatron.keys_of(values) if other else _training(values)),
        **_rollout(values),
    }


def added(key: str) -> bool:
    """Tells whether ``key`` is new for Hydra, because none of verl's own files has it."""
    return key in tables.NOT_IN_VERLS_FILES or megatron.added(key)


def _native(knob: str, value: KnobValue) -> Any:
    if knob == "custom_all_reduce":
        return not value
    return str(value).upper() if knob == "vllm_compile_mode" else value


def _batch(values: Mapping[str, KnobValue], ranks: int) -> dict[str, Any]:
    """Returns the batch's keys, which count prompts."""
    group = int(values["num_generations"])
    each = ranks * int(values["micro_batch_size"])
    found = {}
    for key, steps in (
        (tables.PROMPTS_PER_UPDATE, "gradient_accumulation_steps"),
        (tables.PROMPTS_PER_ROLLOUT, "steps_per_generation"),
    ):
        rows = each * int(values[steps])
        if rows % group:
            raise ValueError(
                f"{rows} rows ({ranks} ranks × micro_batch_size {values['micro_batch_size']} × {steps} "
                f"{values[steps]}) are no whole groups of num_generations {group}, and verl counts in prompts"
            )
        found[key] = rows // group
    return found


def _training(values: Mapping[str, KnobValue]) -> dict[str, Any]:
    precision, reduce = str(values["precision"]), str(values["reduce_precision"])
    impl, optimizer, options = tables.OPTIMIZERS[str(values["optimizer"])]
    multiple = int(values["pad_to_multiple"])
    return {
        tables.STRATEGY: tables.STRATEGIES[str(values["fsdp"])],
        tables.MASTER: values["master_weights"],
        tables.MIXED: {"param_dtype": precision, "reduce_dtype": reduce, "buffer_dtype": "fp32"},
        tables.IMPL: impl,
        tables.OPTIMIZER: optimizer,
        tables.OPTIONS: None if options is None else dict(options),
        tables.PADDED: multiple > 1,
        tables.BUCKET: multiple if multiple > 1 else NO_BUCKET,
    }


def _rollout(values: Mapping[str, KnobValue]) -> dict[str, Any]:
    quantization = values["rollout_quantization"]
    return {
        tables.NAME: values["rollout_engine"],
        tables.MODE: next(
            word for word, meant in tables.MODES.items() if meant == (_mode(values), values["async_generation"])
        ),
        tables.STALENESS: None if values["staleness_limit"] == UNLIMITED else values["staleness_limit"],
        tables.FREE_CACHE: values["sleep_level"] == 2,
        tables.SLEEP_MODE: values["sleep_level"] == 2,
        tables.DTYPE: tables.DTYPES[str(values["rollout_dtype"])],
        tables.QUANTIZATION: None if quantization == "none" else quantization,
        **({tables.APART_NODES: 1, tables.APART_GPUS: values["rollout_gpus"]} if _mode(values) == "server" else {}),
    }


def from_keys(keys: Mapping[str, Any], gpus: int) -> dict[str, KnobValue]:
    """Returns the knobs that ``keys`` (after ``flattened``) set, with the whole batch; ``gpus`` train on all nodes.

    Raises KnobKeyError with the key and the expected value.
    """
    found: dict[str, KnobValue] = {}
    other = megatron.chosen(keys)
    for knob, key in tables.NATIVE.items():
        if other and (key in megatron.NOT_READ or knob in megatron.ELSEWHERE):
            continue
        name, value = _agreed(keys, knob, key)
        if value is not None:
            found[knob] = parsed(knob, name, _read_native(knob, name, value))
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
    return {**found, **_read_batch(keys, found, gpus)}


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
    """Returns the key and the value of ``knob``: of ``key``, or of a related key other than the reference model's."""
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


def _read_native(knob: str, key: str, value: Any) -> Any:
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
    found.update(_read_mode(keys))
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


def _read_mode(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    """Returns the knobs of verl's trainer mode: where and when completions are generated, and the GPUs for it."""
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


def _one_of(keys: Mapping[str, Any], key: str, words: Mapping[str, str], why: str) -> str:
    value = keys[key]
    if not isinstance(value, str) or value not in words:
        raise KnobKeyError(key, f"{why}: expected {' or '.join(words)}, got {show(value)}")
    return words[value]


def _padding(keys: Mapping[str, Any]) -> dict[str, KnobValue]:
    named = tables.PADDED if tables.PADDED in keys else tables.FSDP + "pad_to_length"
    padded = keys.get(named)
    if padded is None:
        return {}
    if not isinstance(padded, bool):
        raise KnobKeyError(named, f"expected true or false, got {show(padded)}")
    bucket = keys.get(tables.BUCKET, 1024) if padded else 1
    return {"pad_to_multiple": parsed("pad_to_multiple", tables.BUCKET, bucket)}


def _uneven(keys: Mapping[str, Any], knobs: Mapping[str, KnobValue], gpus: int) -> KnobKeyError:
    """Builds the error on parallel sizes that do not divide ``gpus``, at a key that sets one of the sizes."""
    together, key = model_parallel(knobs), tables.NATIVE["sequence_parallel_size"]
    if knobs.get("training_engine") != megatron.WORD:
        key = next((beside for beside in tables.BESIDE["sequence_parallel_size"] if key not in keys), key)
        return KnobKeyError(key, f"{together} GPUs cannot share a sequence evenly on {gpus} GPUs")
    return uneven(knobs, {**megatron.OWN, **megatron.ELSEWHERE}, gpus)


def _read_batch(keys: Mapping[str, Any], knobs: Mapping[str, KnobValue], gpus: int) -> dict[str, KnobValue]:
    """Returns the four batch knobs by verl's own rules, which split prompts over the data-parallel ranks."""
    together = model_parallel(knobs)
    if gpus % together:
        raise _uneven(keys, knobs, gpus)
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
    micro = int(knobs.get("micro_batch_size", 0))
    if not micro and knobs.get("dynamic_batching") is not True:
        raise KnobKeyError(tables.NATIVE["micro_batch_size"], "verl has no default for it; set it")
    if knobs.get("dynamic_batching") is True and (not micro or update // ranks % micro or rollout // ranks % micro):
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
