"""Selects the knobs of a configuration that have an effect, and the knobs without a setting in the framework."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS, Reach, defaults
from search_spaces.knobs.build import ENGINE_ARGUMENT, ENGINE_ARGUMENT_0_18

_COLOCATED_ENGINE = tuple(place.partition("%")[0] for place in (ENGINE_ARGUMENT, ENGINE_ARGUMENT_0_18))


def acting(configuration: Mapping[str, KnobValue], framework: str) -> dict[str, KnobValue]:
    """Returns the knobs that have an effect: each knob that they need has the required value, set or by default."""
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
    """Returns the seam knobs with an effect whose value differs from the framework's own, by name.

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
    """Tells whether ``configuration`` runs on ``device`` only with our launcher, although each knob has a key.

    On a CPU TRL's weights do not reach a colocated vLLM, and accelerate refuses DeepSpeed.
    """
    acts = acting(configuration, framework)
    sharded = bool(acts.get("zero_stage"))
    return device == "cpu" and facts_of(framework).helped_on_cpu and (acts.get("rollout_engine") == "vllm" or sharded)


def is_native(configuration: Mapping[str, KnobValue], framework: str, device: str = "cuda") -> bool:
    """Tells whether the framework's own settings reproduce ``configuration`` on ``device``."""
    return not (seam_values(configuration, framework) or helped(configuration, framework, device))
