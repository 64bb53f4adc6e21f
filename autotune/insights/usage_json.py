"""Public JSON of a trial's resource use and of the resource that limits it."""

from __future__ import annotations

from autotune.documents.study import Document, gpu_json, plain
from autotune.domain import Trial
from autotune.insights.blame import blame
from autotune.insights.roofline import Roof
from autotune.insights.usage import PhaseUse, TrialUse, trial_use


def usage_json(trial: Trial, roof: Roof | None) -> Document | None:
    """Resource use by phase; ``null`` where nothing was recorded."""
    use, found = trial_use(trial), blame(trial)
    if use is None:
        return None
    blamed = None if found is None else {"resource": found.resource.value, "phase": plain(found.phase)}
    return {
        **use_json(use),
        "blame": None if found is None or blamed is None else {**blamed, "sentence": found.sentence},
        "roofline_share": None if roof is None else plain(roof.share(trial)),
    }


def use_json(use: TrialUse) -> Document:
    """Use of one phase of the mean speed cycle; ``null`` for figures that are not known."""
    return {
        "cycles": use.cycles,
        "phases": {plain(phase.phase): _phase(phase) for phase in (*use.phases, use.whole)},
        "joules_per_token": plain(use.joules_per_token),
        "device_allocations_per_cycle": plain(use.device_allocations),
        "alloc_retries_per_cycle": plain(use.alloc_retries),
        "gradient_sync_exposed_seconds": plain(use.gradient_sync_exposed_s),
    }


def _phase(use: PhaseUse) -> Document:
    return {
        "seconds": plain(use.seconds),
        "main_thread_share": plain(use.main_thread),
        "cores": plain(use.cores),
        "watts": plain(use.watts),
        "gpu": gpu_json(use.gpu),
    }
