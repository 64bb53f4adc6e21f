"""Settings that both an Open-R1 recipe and its accelerate file may have: which one holds, and contradictions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.config_entries import ConfigError, problem
from trainer.frameworks.common.deepspeed_match import batch_unset, said_otherwise
from trainer.frameworks.open_r1.accelerate_config import Accelerate
from trainer.frameworks.open_r1.objective import OBJECTIVE

_HALF = ("bf16", "fp16")


def precision_beside(recipe: Mapping[str, Any], beside: Accelerate) -> dict[str, KnobValue]:
    """``mixed_precision`` holds where the recipe turns neither on (``training_args.py:1802`` of transformers 4.52)."""
    if beside.file.precision not in _HALF or any(recipe.get(key) is True for key in _HALF):
        return {}
    return {"precision": beside.file.precision}


def differing(recipe: Mapping[str, Any], beside: Accelerate, processes: int) -> Iterator[ConfigError]:
    """What DeepSpeed's configuration says in other values than the recipe, by its line in the accelerate file."""
    half = str(precision_beside(recipe, beside).get("precision", ""))
    computing = {key: recipe.get(key) is True or half == key for key in _HALF}
    unset = {**OBJECTIVE, **batch_unset(FRAMEWORK)}
    for place, text in said_otherwise(beside.file.deepspeed, {**recipe, **computing}, unset, processes):
        yield beside.file.problem(place, text)
    if beside.file.deepspeed is not None and half and recipe.get(half) is False:
        text = f"mixed_precision: {half} here and {half} false in the recipe differ, which transformers refuses beside"
        yield problem(beside.file.name, beside.file.line("mixed_precision"), f"{text} DeepSpeed; write one of them")


def notes_beside(recipe: Mapping[str, Any], beside: Accelerate) -> Iterator[str]:
    """What a user may not expect of the two files."""
    half = str(precision_beside(recipe, beside).get("precision", ""))
    if half and beside.file.deepspeed is not None and recipe.get(half) is None:
        text = f"mixed_precision: a trial computes in {half}; transformers refuses it beside DeepSpeed until the recipe"
        yield str(problem(beside.file.name, beside.file.line("mixed_precision"), f"{text} says {half}: true too"))
