"""Precision, optimizers and kernels: refused by name, with the reason, before anything is launched."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.configuration import Configuration, Resources
from search_spaces.legality import check, is_legal

H100: dict[str, Any] = {"gpus": 2, "device": "cuda", "compute_capability": (9, 0)}
A100: dict[str, Any] = {**H100, "compute_capability": (8, 0)}
HAS = {"torch": "2.13.0", "torchao": "0.18.0", "deepspeed": "0.19.8"}


def said(resources: Resources, **knobs: Any) -> str:
    return " ".join(v.sentence for v in check(Configuration(knobs), resources))


@pytest.mark.parametrize(
    ("machine", "emulate", "words"),
    [
        ({}, False, "needs compute capability 8.9 or later, or fp8_emulate, and this is a CPU run"),
        ({}, True, ""),
        (A100, False, "this GPU has 8.0"),
        (A100, True, ""),
        (H100, False, ""),
    ],
)
def test_fp8_needs_the_hardware_or_to_be_asked_to_emulate(machine: dict[str, Any], emulate: bool, words: str) -> None:
    """Emulation must never come about by itself: a space that does not name it has no such configuration."""
    found = said(Resources(software=HAS, **machine), precision="fp8", fp8_emulate=emulate)
    assert words in found
    assert bool(found) == bool(words)


def test_fp8_that_nobody_asked_to_emulate_is_not_emulated() -> None:
    assert not is_legal(Configuration({"precision": "fp8"}), Resources(software=HAS))


@pytest.mark.parametrize("sharded", [{"zero_stage": 3}, {"fsdp": "fsdp2"}])
def test_fp8_layers_hold_whole_weights(sharded: dict[str, Any]) -> None:
    resources = Resources(software=HAS, **H100)
    ((knob, value),) = sharded.items()
    assert f"which {knob} {value} shares out over ranks" in said(resources, precision="fp8", **sharded)
    assert is_legal(Configuration({"precision": "fp8", "zero_stage": 2}), resources)
    assert is_legal(Configuration({"precision": "bf16", **sharded}), resources)


def test_fp8_needs_torchao() -> None:
    assert "torchao" in said(Resources(software={"torch": "2.13.0"}, **H100), precision="fp8")


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"optimizer": "adamw_8bit"}, "adamw_8bit needs a GPU"),
        ({"optimizer": "paged_adamw_32bit"}, "paged_adamw_32bit needs a GPU"),
        ({"optimizer": "adamw_torch_8bit"}, "adamw_torch_8bit needs a GPU"),
        ({"optimizer": "galore_adamw"}, "needs the package galore_torch"),
        ({"optimizer": "schedule_free_adamw"}, "needs the package schedulefree"),
        ({"optimizer": "muon"}, "muon is none that trl has"),
        ({"precision": "fp16"}, "fp16 needs a GPU for its loss scaling"),
        ({"tf32": True}, "tf32 needs compute capability 8.0"),
        ({"activation_offload": True}, "a CPU run, where activations are in host memory already"),
        ({"hub_kernels": True}, "hub_kernels needs a GPU"),
        ({"attn_implementation": "flash_attention_2"}, "flash_attention_2 needs a GPU"),
    ],
)
def test_what_a_cpu_cannot_is_refused_by_name(knobs: dict[str, Any], words: str) -> None:
    assert words in said(Resources(software=HAS), **knobs)


@pytest.mark.parametrize("name", ["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "rmsprop", "adagrad"])
def test_what_torch_itself_has_runs_on_a_cpu(name: str) -> None:
    assert is_legal(Configuration({"optimizer": name}), Resources(software=HAS))


@pytest.mark.parametrize(
    ("knobs", "package"),
    [
        ({"optimizer": "adamw_8bit"}, "bitsandbytes"),
        ({"hub_kernels": True}, "kernels"),
        ({"attn_implementation": "kernels-community/flash-attn"}, "kernels"),
        ({"attn_implementation": "flash_attention_2"}, "flash_attn"),
    ],
)
def test_a_package_that_is_missing_is_named_and_one_that_is_there_is_not(knobs: dict[str, Any], package: str) -> None:
    assert f"needs the package {package}" in said(Resources(software=HAS, **H100), **knobs)
    there = Resources(software={**HAS, package: "1.0"}, **H100)
    assert is_legal(Configuration(knobs), there)
    assert is_legal(Configuration(knobs), Resources(**H100)), "what is not known rules nothing out"
