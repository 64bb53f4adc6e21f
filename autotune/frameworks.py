"""The training frameworks a study can run, behind ``ports.Framework``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.domain import Outcome
from autotune.errors import UsageError
from autotune.ports import Assignment, Companion, Diagnosis, Framework, Place
from search_spaces.batch import training_gpus
from trainer.child.contract import TrialSpec
from trainer.frameworks import trl
from trainer.frameworks.trl import server


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
            world_size=training_gpus(trial.configuration, resources),
            seed=study.spec.seed,
            memory_limit=study.spec.memory_limit,
            revision="" if os.path.isabs(workload.model) else workload.model_sha256,
        )

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        configuration, attempt = assignment.trial.configuration, assignment.trial.attempt
        if not server.wants_server(configuration):
            return None
        training, serving = server.split(place.gpus, configuration)
        name = f"autotune-{spec.trial}-{attempt}".replace("/", "-")
        return Companion(
            argv=server.server_command(
                configuration,
                spec.model,
                place.python,
                place.port,
                longest=spec.max_prompt_length + spec.max_completion_length,
                name=name,
                revision=spec.revision,
                passthrough=spec.passthrough,
            ),
            spec=replace(spec, settings={**spec.settings, **server.trainer_settings(place.port, place.group_port)}),
            health=f"{server.base_url(place.port)}/v1/models",
            answer=f'"{name}"',
            ready_s=server.READY_S,
            environment={**server.server_environment(serving), **server.IN_TRIAL},
            trial_environment=server.trainer_environment(training),
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
