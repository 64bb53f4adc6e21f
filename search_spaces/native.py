"""Tells which knobs have an effect and which need a seam in a framework, and handles the value ``unset``."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.batch import BATCH_KNOBS
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS, Knob, Reach, defaults
from search_spaces.knobs.build import ENGINE_ARGUMENT, ENGINE_ARGUMENT_0_18

_COLOCATED_ENGINE = tuple(place.partition("%")[0] for place in (ENGINE_ARGUMENT, ENGINE_ARGUMENT_0_18))


def acting(configuration: Mapping[str, KnobValue], framework: str) -> dict[str, KnobValue]:
    """Returns the knobs that have an effect: every knob that they need has a required value, set or by default."""
    unset = defaults(framework)

    def holds(name: str) -> bool:
        needs = KNOBS[name].needs if name in KNOBS else {}
        return all(configuration.get(other, unset.get(other)) in wanted for other, wanted in needs.items())

    return {name: value for name, value in configuration.items() if holds(name)}


def emulated(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether FP8 products are computed in higher precision, so that times are not those of FP8 hardware."""
    return configuration.get("precision") == "fp8" and configuration.get("fp8_emulate") is True


def in_fp8(configuration: Mapping[str, KnobValue], framework: str) -> tuple[str, ...]:
    """Returns the names of knobs with an effect that compute or store values in FP8."""
    acts = acting(configuration, framework)
    named = ("kv_cache_dtype", "precision", "rollout_quantization")
    return tuple(name for name in named if str(acts.get(name, "")).startswith("fp8"))


def seam_values(configuration: Mapping[str, KnobValue], framework: str) -> dict[str, KnobValue]:
    """Returns the knobs set by patches (seams) that have an effect and differ from the framework's own value, by name.

    Empty if the framework's own settings reproduce the configuration.
    """
    found = {}
    server = acting(configuration, framework).get("rollout_mode") == "server"
    for name, value in sorted(acting(configuration, framework).items()):
        setting = KNOBS[name].frameworks.get(framework) if name in KNOBS else None
        if setting is None or (setting.reach is not Reach.SEAM and value not in setting.by_seam):
            continue
        if server and setting.key.startswith(_COLOCATED_ENGINE):  # the server takes it on its own command line
            continue
        own = setting.default if setting.default is not None else configuration.get(setting.follows)
        if value != own:
            found[name] = value
    return found


def helped(configuration: Mapping[str, KnobValue], framework: str, device: str) -> bool:
    """Tells whether ``configuration`` runs on ``device`` only with our launcher, although every knob has a key.

    On a CPU TRL's weights do not reach a colocated vLLM, and accelerate refuses DeepSpeed.
    """
    acts = acting(configuration, framework)
    sharded = bool(acts.get("zero_stage"))
    return device == "cpu" and facts_of(framework).helped_on_cpu and (acts.get("rollout_engine") == "vllm" or sharded)


def is_native(configuration: Mapping[str, KnobValue], framework: str, device: str = "cuda") -> bool:
    """Tells whether the framework's own settings reproduce ``configuration`` on ``device``."""
    return not (seam_values(configuration, framework) or helped(configuration, framework, device))


UNSET = "unset"
"""Value in a space that leaves a knob to the framework; a configuration never contains this value.

Where the framework has a known default, unset and that default are one candidate. Where it has no setting for the knob,
every candidate leaves it out."""

_PLACE = frozenset({"rollout_engine", "rollout_mode", "rollout_gpus", "training_gpus", "rollout_data_parallel_size"})
"""Knobs that decide which engine generates and on which GPUs, and therefore the batch."""


def must_be_known(knob: Knob) -> bool:
    """Tells whether a candidate must set the knob: batch knobs, engine placement, and knobs with a followed default."""
    following = any(setting.follows for setting in knob.frameworks.values())
    return knob.derived or following or knob.name in _PLACE or knob.name in BATCH_KNOBS


def resolved(
    values: Mapping[str, tuple[KnobValue, ...]], framework: str, device: str = "cuda"
) -> dict[str, tuple[KnobValue, ...]]:
    """Returns ``values`` with ``UNSET`` replaced by the framework's default, if any.

    Drops knobs that list ``UNSET`` and that the framework lacks.
    """
    own = defaults(framework, device)
    found: dict[str, tuple[KnobValue, ...]] = {}
    for name, listed in values.items():
        if UNSET not in listed:
            found[name] = listed
        elif framework in KNOBS[name].frameworks:
            usual = own.get(name, UNSET)
            found[name] = tuple(dict.fromkeys(usual if value == UNSET else value for value in listed))
    return found
