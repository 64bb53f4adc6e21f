"""The public JSON of studies, trials and events: one shape for every ``--json`` and every client.

Names are stable; a key that carries a measurement ends in its unit (``_seconds``, ``_bytes``, ``_tokens``,
``tokens_per_hour``, ``_share`` for 0..1). Times are UTC in ISO 8601. Unknown is ``null``; NaN and infinities never
appear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

from autotune.domain import (
    Budget,
    Ceiling,
    Configuration,
    CycleRecord,
    Event,
    GpuUse,
    Outcome,
    Protocol,
    Study,
    StudySpec,
    Trial,
)
from autotune.domain.places import TrialPlace

Document = dict[str, Any]


def plain(value: Any) -> Any:
    """Converts any value to plain JSON data: a non-finite number becomes ``null``, a lone surrogate ``?``."""
    if value is None or type(value) in (int, bool):  # most are
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return plain(str(value))


def fields_json(value: Any, names: Mapping[str, str] = MappingProxyType({})) -> Document:
    """Converts a dataclass to JSON, in the order of its fields. ``names`` renames fields; an empty name omits the
    field."""
    called = {each.name: names.get(each.name, each.name) for each in fields(value)}
    return {name: plain(getattr(value, own)) for own, name in called.items() if name}


def timestamp(at: float | None) -> str | None:
    """Formats UTC seconds as ``2026-11-20T12:00:00.000Z``; ``None`` for a time that is unknown or not representable."""
    if at is None or not math.isfinite(at) or at == 0:
        return None
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configuration_json(configuration: Configuration) -> Document:
    """Converts a configuration to JSON: knob name -> value, ordered by name."""
    return {name: plain(configuration[name]) for name in configuration}


def changes_json(configuration: Configuration, baseline: Configuration) -> Document:
    """Returns knob name -> ``{"baseline", "here"}`` for every knob that differs from the baseline."""
    difference = configuration.difference(baseline)
    return {name: {"baseline": plain(there), "here": plain(here)} for name, (here, there) in difference.items()}


def budget_json(budget: Budget) -> Document:
    """Converts a study's budget to JSON; ``null`` means no limit."""
    return fields_json(budget, {"wall_s": "wall_seconds", "at_once": "trials_at_once"})


def study_json(study: Study, state: str) -> Document:
    """Converts a study's specification and state (``RunState``) to JSON, without its trials."""
    return {
        "id": study.id,
        "name": plain(study.spec.name),
        "status": study.status.value,
        "state": state,
        "created_at": timestamp(study.created_at),
        "revision": study.revision,
        **spec_json(study.spec),
        "recorded_lengths_tokens": list(study.lengths),
    }


def spec_json(spec: StudySpec) -> Document:
    """Converts a study's specification to JSON."""
    return {
        "digest": spec.digest,
        "framework": plain(spec.framework),
        "model": plain(spec.workload.model),
        "rewards": [{"kind": plain(reward.kind), "name": plain(reward.name)} for reward in spec.workload.rewards],
        "rows_per_update": spec.workload.rows_per_update,
        "max_prompt_tokens": spec.workload.max_prompt_length,
        "max_completion_tokens": spec.workload.max_completion_length,
        "gpus": spec.resources.total_gpus,
        "device": plain(spec.resources.device),
        "memory_limit_bytes": spec.memory_limit,
        "sampler": plain(spec.sampler),
        "objective": spec.objective.value,
        "seed": spec.seed,
        "python": plain(spec.python),
        "baseline": configuration_json(spec.baseline),
    }


_TRIAL = {
    **dict.fromkeys(("study_id", "protocol", "outcome", "cycles", "watchdog_peak", "per_gpu"), ""),
    **dict.fromkeys(("node", "node_log", "node_variance", "created_at", "started_at", "finished_at"), ""),
    "startup": "startup_seconds",
    "seconds": "wall_seconds",
}


def trial_json(trial: Trial, baseline: Configuration, *, cycles: bool = False) -> Document:
    """Converts a trial to JSON, with its protocol and every cycle if ``cycles`` is set."""
    document: Document = {
        **fields_json(trial, _TRIAL),
        "changes": changes_json(trial.configuration, baseline),
        "tokens_per_hour": plain(trial.tokens_per_hour),
        "tokens_per_hour_per_gpu": plain(trial.tokens_per_hour_per_gpu),
        "at_most_tokens_per_hour": plain(trial.at_most),
        "speed_cycles": len(trial.speed_cycles()),
        "feasible": trial.feasible,
        "emulated": trial.emulated,
        "outcome": None if trial.outcome is None else outcome_json(trial.outcome),
        "host_peak_bytes": trial.host_peak,
        "device_peak_bytes": trial.device_peak,
        **{name: timestamp(getattr(trial, name)) for name in ("created_at", "started_at", "finished_at")},
    }
    if cycles:
        document["protocol"] = protocol_json(trial.protocol)
        document["cycles"] = [cycle_json(cycle) for cycle in trial.cycles]
    return document


def place_json(place: TrialPlace) -> Document:
    """Converts the slot where a trial ran to JSON; a name is ``null`` if the study has only one."""
    return {
        "name": plain(place.title) or None,
        "node": plain(place.node) or None,
        "gpus": [fields_json(gpu) for gpu in place.gpus],
    }


def outcome_json(outcome: Outcome) -> Document:
    """Converts the outcome of a trial to JSON; ``reason`` is ``null`` exactly when ``ok``."""
    return {
        "ok": outcome.ok,
        **fields_json(outcome, {"fresh": "fresh_worker"}),
        "sentence": plain(outcome.sentence()),
        "log_path": plain(outcome.log_path) or None,
        "ceiling": None if outcome.ceiling is None else ceiling_json(outcome.ceiling),
    }


def ceiling_json(ceiling: Ceiling) -> Document:
    """Converts the speed bound of a trial that was stopped early to JSON."""
    bounds = {"at_most": "at_most_tokens_per_hour", "best_at_least": "best_at_least_tokens_per_hour"}
    return fields_json(ceiling, {**bounds, "rival": "best_trial", "physical": "by_phases"})


_PROTOCOL = {
    **{name: f"{name}_cycles" for name in ("warmup", "natural", "recorded", "maximum", "double", "looks")},
    "outside_cpu_limit": "outside_cpu_limit_share",
    "lengths": "recorded_lengths_tokens",
}


def protocol_json(protocol: Protocol) -> Document:
    """Converts the measurement protocol of a trial to JSON."""
    return fields_json(protocol, _PROTOCOL)


_CYCLE = {
    **dict.fromkeys(("kind", "started", "lengths", "peaks", "process", "gpu"), ""),
    **{name: f"{name}_share" for name in ("drift", "outside_cpu", "cache_usage")},
    "cycle_kind": "kind",
    "phases": "phase_seconds",
}


def cycle_json(cycle: CycleRecord) -> Document:
    """Converts one cycle of one rank to JSON. A field added to ``CycleRecord`` appears without a change here."""
    return {
        **fields_json(cycle, _CYCLE),
        "started_at": timestamp(cycle.started),
        "tokens_per_hour": plain(cycle_rate(cycle)),
        "useful_share": plain(cycle.useful_share),
        "lengths_tokens": list(cycle.lengths),
        "peaks": {
            plain(name): {f"{key}_bytes": value for key, value in fields_json(peaks).items()}
            for name, peaks in cycle.peaks.items()
        },
        "process": None if cycle.process is None else fields_json(cycle.process, _PROCESS),
        "gpu": {plain(name): gpu_json(use) for name, use in cycle.gpu.items()},
    }


_PROCESS = {
    "main_thread": "main_thread_cpu_seconds",
    "all_threads": "all_threads_cpu_seconds",
    "system_seconds": "system_cpu_seconds",
    "reserved_growth": "reserved_growth_bytes",
    "gradient_sync_hidden": "gradient_sync_hidden_share",
}
_GPU = {
    **{name: f"{name}_share" for name in ("busy", "memory_busy", "power_capped", "hot")},
    **{name: f"{name}_bytes" for name in ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")},
}


def gpu_json(use: GpuUse) -> Document:
    """Converts the use of the GPUs in a phase to JSON; ``null`` for figures that NVML does not report."""
    return fields_json(use, _GPU)


def cycle_rate(cycle: CycleRecord) -> float | None:
    """Returns the distinct completion tokens per hour of one cycle; ``None`` if it took no time."""
    return 3600.0 * cycle.completion_tokens / cycle.seconds if cycle.seconds > 0 else None


def hardware_json(hardware: Mapping[str, Any]) -> Document:
    """Converts the hardware of a fingerprint to JSON; ``memory`` becomes ``memory_bytes``."""
    found: Document = {}
    for name, value in hardware.items():
        if name == "memory":
            found["memory_bytes"] = plain(value)
        elif name == "gpus" and isinstance(value, list | tuple):
            found["gpus"] = [hardware_json(gpu) if isinstance(gpu, Mapping) else plain(gpu) for gpu in value]
        else:
            found[plain(str(name))] = plain(value)
    return found


def event_json(event: Event) -> Document:
    """Converts an entry of a study's log to JSON; ids grow."""
    return {**fields_json(event), "at": timestamp(event.at)}
