"""A plan as JSON; every document says that it is predicted. Keys carry their unit, as in ``documents.study``."""

from __future__ import annotations

from autotune.documents.study import Document, changes_json, configuration_json, fields_json, plain
from autotune.domain import Configuration
from autotune.forecast.answer import Load, Machine, Need, Needs, Plan, Predicted


def plan_json(plan: Plan) -> Document:
    """Converts a plan to JSON."""
    baseline = plan.baseline.configuration
    permitted = plan.permitted
    return {
        "predicted": True,
        "load": load_json(plan.load),
        "machine": machine_json(plan.machine),
        "space": plain(plan.space),
        "legal": plan.legal,
        "legal_exact": plan.exact,
        "looked_at": plan.looked_at,
        "likely_to_fit": plan.fitting,
        "feasible": plan.feasible,
        "config": plain(plan.config) or None,
        "framework_defaults": predicted_json(plan.baseline, baseline),
        "best": [predicted_json(found, baseline) for found in plan.best],
        "permitted": None if permitted is None else predicted_json(permitted, baseline),
        "accuracy": {"sentence": plain(plan.accuracy.sentence), "recorded_trials": plan.accuracy.rows},
        "notes": plain(plan.notes),
    }


def needs_json(needs: Needs) -> Document:
    """Converts the machines that a model would need to JSON."""
    return {
        "predicted": True,
        "load": load_json(needs.load),
        "needs": [_need(need) for need in needs.needs],
        "largest_looked_at": needs.largest,
        "notes": plain(needs.notes),
    }


def predicted_json(found: Predicted, baseline: Configuration) -> Document:
    """Converts one configuration's forecast to JSON; intervals are 95 % ones."""
    return {
        "predicted": True,
        "configuration": configuration_json(found.configuration),
        "changes": changes_json(found.configuration, baseline),
        "tokens_per_hour": plain(found.tokens_per_hour),
        "tokens_per_hour_low": plain(found.low),
        "tokens_per_hour_high": plain(found.high),
        "cycle_seconds": plain(found.cycle_s),
        "phase_seconds": plain(found.phases),
        "peak_bytes": plain(found.peak),
        "peak_bytes_low": plain(found.peak_low),
        "peak_bytes_high": plain(found.peak_high),
        "peak_moment": found.moment,
        "parts_bytes": plain(found.parts),
        "capacity_bytes": found.capacity,
        "host_bytes_of_a_node": plain(found.host),
        "fits_probability": plain(found.fits),
        "limit": plain(found.limit()),
    }


def load_json(load: Load) -> Document:
    """Converts the planned training to JSON."""
    shape = load.architecture
    return {
        "model": plain(load.model),
        "family": plain(shape.family),
        "parameters": shape.parameters,
        "active_parameters": shape.active,
        "framework": load.framework,
        "rows_per_update": load.rows_per_update,
        "num_generations": load.num_generations,
        "max_prompt_tokens": load.max_prompt_length,
        "max_completion_tokens": load.max_completion_length,
        "mean_completion_tokens": plain(load.mean_completion),
        "lora_rank": load.lora_rank,
    }


def machine_json(machine: Machine) -> Document:
    """Converts a machine to JSON."""
    return fields_json(machine, {"memory": "gpu_memory_bytes"})


def _need(need: Need) -> Document:
    found = need.found
    return {
        "how": need.how,
        "gpu": need.gpu,
        "machine": None if need.machine is None else machine_json(need.machine),
        "rows_per_update": need.rows,
        "configuration": None if found is None else configuration_json(found.configuration),
        "peak_bytes": None if found is None else plain(found.peak),
        "fits_probability": None if found is None else plain(found.fits),
        "host_bytes_of_a_node": None if found is None else plain(found.host),
    }
