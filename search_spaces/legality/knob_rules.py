"""Rules of a single knob: it exists, has a legal value, has a setting in the framework, and has an effect."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from search_spaces.configuration import KnobValue, Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, Knob
from search_spaces.knobs.model import show
from search_spaces.legality.case import Case, Rule, forbid

_ROWS = "rows per update are fixed at the baseline's, so that trials are comparable"
_LENGTHS = "lengths are fixed at the baseline's, so that trials are comparable"
_OBJECTIVE = "the objective stays as in your own configuration"
_SAMPLING = "sampling stays as in your own configuration"
_REUSE = "how often completions are reused stays as in your own configuration"
_TUNER = "full, LoRA or QLoRA stays as in your own configuration"

WORKLOAD_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "generation_batch_size": "use steps_per_generation",
        "per_device_train_batch_size": "use micro_batch_size",
        "rows_per_update": _ROWS,
        "ppo_mini_batch_size": _ROWS,
        "train_batch_size": _ROWS,
        "max_prompt_length": _LENGTHS,
        "max_completion_length": _LENGTHS,
        "num_iterations": _REUSE,
        "ppo_epochs": _REUSE,
        "importance_sampling_correction": _OBJECTIVE,
        "vllm_importance_sampling_correction": _OBJECTIVE,
        "beta": _OBJECTIVE,
        "epsilon": _OBJECTIVE,
        "epsilon_high": _OBJECTIVE,
        "loss_type": _OBJECTIVE,
        "scale_rewards": _OBJECTIVE,
        "mask_truncated_completions": _OBJECTIVE,
        "max_grad_norm": _OBJECTIVE,
        "learning_rate": _OBJECTIVE,
        "lr_scheduler_type": _OBJECTIVE,
        "weight_decay": _OBJECTIVE,
        "top_p": _SAMPLING,
        "top_k": _SAMPLING,
        "min_p": _SAMPLING,
        "repetition_penalty": _SAMPLING,
        "seed": _SAMPLING,
        "use_peft": _TUNER,
        "lora_r": _TUNER,
        "lora_alpha": _TUNER,
        "lora_rank": _TUNER,
    }
)
"""Name that a user may try for a batch size -> reason why it is not a knob."""


def unknown_knob(name: str) -> str:
    """Returns the message for a name that is not in the catalogue, with the nearest knob."""
    reason = WORKLOAD_KEYS.get(name)
    if reason is not None:
        return f"{show(name)} is not a knob: {reason}"
    close = difflib.get_close_matches(name[:80], KNOBS, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}" if close else "; `autotune space show` lists the knobs"
    return f"{show(name)} is not a known knob{hint}"


def domain_problem(name: str, value: object) -> str | None:
    """Returns a sentence if the knob is unknown or the value outside its domain; else ``None``."""
    knob = KNOBS.get(name)
    if knob is None:
        return unknown_knob(name)
    try:
        knob.parse(value)
    except SpaceError as error:
        return f"{name}: {error}"
    return None


def _reachable(knob: Knob) -> Rule:
    """Makes the rule that a configuration sets the knob only if the framework has it."""
    return forbid(
        f"framework_has_knob: | {knob.name}",
        lambda c: knob.name in c.values and c.framework not in knob.frameworks,
        lambda c: f"{c.framework} cannot set {knob.name} (only {', '.join(knob.frameworks)} can)",
    )


def _acting(knob: Knob) -> Rule:
    """Makes the rule that a knob without effect has its inactive value."""

    def judge(case: Case) -> str | None:
        value = case.values.get(knob.name)
        if value is None or case.acts(knob.name) or value == knob.inactive_value(case.framework, case.resources.device):
            return None
        name, wanted = next((n, wanted) for n, wanted in knob.needs.items() if case.get(n) not in wanted)
        there = case.facts.generates_with if name == "rollout_engine" else wanted
        values = " or ".join(show(v) for v in wanted if v in there)
        return f"{knob.name} {show(value)} acts only with {name} {values}, not {show(case.get(name))}"

    return Rule("knob_acts", frozenset({knob.name, *knob.needs}), (knob.name, *knob.needs), judge)


def resting(values: Mapping[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values`` with each knob without effect at its inactive value, so that equivalent ones are equal."""
    case = Case(values, resources)
    return {name: value if (rest := inactive_value_of(name, case)) is None else rest for name, value in values.items()}


def inactive_value_of(name: str, case: Case) -> KnobValue | None:
    """Returns the inactive value of a knob without effect in ``case``; ``None`` for a knob with an effect."""
    knob = KNOBS.get(name)
    if knob is None or not knob.needs or case.acts(name):
        return None
    return knob.inactive_value(case.resources.framework, case.resources.device)


def _frameworks() -> list[str]:
    return sorted({f for knob in KNOBS.values() for f in knob.frameworks})


RULES = (
    forbid(
        "known_framework:",
        lambda c: c.framework not in _frameworks(),
        lambda c: f"{show(c.framework)} is none of the frameworks {', '.join(_frameworks())}",
    ),
    *(_reachable(knob) for knob in KNOBS.values()),
    *(_acting(knob) for knob in KNOBS.values() if knob.needs),
)
