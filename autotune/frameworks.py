"""The training frameworks a study can run, behind ``ports.Framework``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from autotune.domain import Outcome
from autotune.errors import UsageError
from autotune.ports import Assignment, Diagnosis, Framework
from trainer.child.contract import TrialSpec
from trainer.frameworks import trl


class TrlFramework:
    """``ports.Framework`` over the parent's side of TRL."""

    name = "trl"

    def render(self, assignment: Assignment) -> TrialSpec:
        study, trial = assignment.study, assignment.trial
        workload, resources = study.spec.workload, study.spec.resources
        return trl.render(
            trial=f"{study.id}/{trial.number}",
            configuration=trial.configuration,
            model=workload.model,
            prompts=workload.prompts,
            rewards=workload.rewards,
            rows_per_update=trial.rows_per_update,
            max_prompt_length=workload.max_prompt_length,
            max_completion_length=workload.max_completion_length,
            protocol=trial.protocol,
            passthrough=workload.passthrough,
            device=resources.device,
            world_size=resources.training_processes,
            seed=study.spec.seed,
            memory_limit=study.spec.memory_limit,
            revision="" if os.path.isabs(workload.model) else workload.model_sha256,
        )

    def diagnose(self, text: str) -> Diagnosis | None:
        found = trl.diagnose(text)
        if found is None:
            return None
        return Diagnosis(found.reason, found.pool, found.phase, found.message, found.suggestion)

    def suggest(self, outcome: Outcome) -> str:
        return trl.suggest(outcome.reason, outcome.phase, outcome.pool) if outcome.reason is not None else ""


FRAMEWORKS: Mapping[str, Callable[[], Framework]] = {"trl": TrlFramework}
"""Open-R1, ms-swift and verl join here."""


def framework_named(name: str) -> Framework:
    """Raises ``UsageError`` naming those there are."""
    if name not in FRAMEWORKS:
        raise UsageError(f"there is no framework {name!r} yet; choose one of: {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[name]()
