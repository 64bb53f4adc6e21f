"""Every key of TRL, Open-R1, ms-swift and Megatron-SWIFT goes somewhere: to a knob, to the trial, to a refusal by its
line, or to the list of what a trial does without. There is no fourth way."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support import swift_fields, trl_fields
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.fields import Field
from trainer.frameworks.ms_swift import key_handling as swift_handling
from trainer.frameworks.ms_swift.import_config import import_config as import_swift
from trainer.frameworks.ms_swift.megatron import PREFIX
from trainer.frameworks.open_r1 import keys as openr1_handling
from trainer.frameworks.open_r1.import_config import import_config as import_recipe
from trainer.frameworks.open_r1.keys import FIELDS as OPENR1
from trainer.frameworks.trl import key_handling as trl_handling
from trainer.frameworks.trl.import_config import import_config as import_trl

TRL, SWIFT = trl_fields.FIELDS, swift_fields.FIELDS
STUDY_OWN = {"trl": trl_handling.INPUTS, "open_r1": openr1_handling.INPUTS, "ms_swift": swift_handling.INPUTS}
WITHOUT = {"trl": trl_handling.MEASURING, "open_r1": openr1_handling.MEASURING, "ms_swift": swift_handling.MEASURING}
FOR_TRIAL: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "trl": trl_handling.for_trial,
    "open_r1": openr1_handling.for_trial,
    "ms_swift": swift_handling.for_trial,
}
SPECIAL: Mapping[str, Any] = {
    "deepspeed": {"zero_optimization": {"stage": 2}},
    "fsdp": "full_shard auto_wrap",
    "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "reward_funcs": ["accuracy", "format"],
    "rlhf_type": "grpo",
    "loss_type": "dr_grpo",
    "dtype": "float32",
    "torch_dtype": "float32",
    "generation_batch_size": 64,
    "global_batch_size": 32,
    "steps_per_generation": 2,
    "vllm_mode": "server",
    "attn_implementation": "eager",
    "attn_impl": "eager",
    "optimizer": "muon",
    "torch_compile_mode": "max-autotune",
    "sleep_level": 1,
}
"""Values that the keys' types do not tell."""


def other_than(field: Field) -> Any:
    """A value of the key's type that is not its default."""
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    if field.choices:
        others = (choice for choice in field.choices if choice not in (field.default, None, "no", "none"))
        return next(others, field.default)
    number = field.default + 1 if isinstance(field.default, int) else 1
    for kind in ("bool", "int", "float"):
        if kind in field.kinds:
            return {"bool": field.default is not True, "int": number, "float": 0.5}[kind]
    inner = next((kind for kind in sorted(field.kinds) if kind.startswith("list")), None)
    if inner is not None and "str" not in field.kinds:
        return {"list[float]": [1.0], "list[int]": [7], "list[dict]": [{"path": "a"}]}.get(inner, ["a"])
    return {"a": 1} if "dict" in field.kinds else "a"


def keys_of() -> Iterator[tuple[str, str]]:
    for framework, fields in (("trl", TRL), ("open_r1", OPENR1), ("ms_swift", SWIFT)):
        for name in fields:
            yield framework, name


def imported(framework: str, key: str, value: Any) -> Imported:
    """The configuration of one key, as users have it."""
    if framework == "trl":
        return import_trl(json.dumps({key: value}), "own.yaml", TRL)
    if framework == "open_r1":
        return import_recipe(json.dumps({key: value}), "own.yaml")
    words = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict | bool) else str(value)]
    program, processes = ("megatron", 4) if key.startswith(PREFIX) else ("swift", 1)
    key = key.removeprefix(PREFIX)
    kind = "" if key == "rlhf_type" else "--rlhf_type grpo "
    text = f"{program} rlhf {kind}\\\n --{key} {shlex.join(map(str, words))}"
    return import_swift(text, "own.sh", SWIFT, processes)


NOTHING: Mapping[str, Imported] = {
    "trl": import_trl("beta: 0.0", "own.yaml", TRL),
    "open_r1": import_recipe("beta: 0.04", "own.yaml"),
    "ms_swift": import_swift("swift rlhf --rlhf_type grpo", "own.sh", SWIFT),
}
"""A configuration that sets no knob."""
MEGATRON = import_swift("megatron rlhf --rlhf_type grpo", "own.sh", SWIFT, 4)
"""The same of Megatron-SWIFT."""


@pytest.mark.parametrize(("framework", "key"), list(keys_of()))
def test_a_key_is_honoured_or_refused_by_its_line_or_a_trial_does_without_it(framework: str, key: str) -> None:
    fields = {"trl": TRL, "open_r1": OPENR1, "ms_swift": SWIFT}[framework]
    own = key.removeprefix(PREFIX)
    value = other_than(replace(fields[key], name=own))
    nothing = NOTHING[framework] if own == key else MEGATRON
    refused = ""
    try:
        found = imported(framework, key, value)
    except ConfigError as error:
        refused = str(error)
    key = own
    if refused:
        assert f"line 1: {key}" in refused or f"line 2: {key}" in refused, refused
        return
    handed = FOR_TRIAL[framework](found.passthrough).get(key)
    if key in WITHOUT[framework]:
        assert found.passthrough[key] == value, "an exported file keeps what a trial does without"
        assert handed is None
    elif key in STUDY_OWN[framework]:
        assert key == "rlhf_type" or value in studied(found, key)
    elif handed not in (value, [value], str(value).lower()):
        assert found.knobs != nothing.knobs, f"{framework}: {key} went nowhere"


def studied(found: Imported, key: str) -> list[Any]:
    """What a study has fields of its own for."""
    prompt = found.max_prompt_length
    return [found.model, found.max_completion_length, prompt, list(found.rewards), found.dataset.get(key)]
