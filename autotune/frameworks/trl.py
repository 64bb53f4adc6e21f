"""TRL behind the port, with its rollout server."""

from __future__ import annotations

from dataclasses import replace

from autotune.frameworks.packaged import Packaged
from autotune.frameworks.port import ExportNames
from autotune.ports import Assignment, Companion, Place
from trainer.child.contract import TrialSpec
from trainer.frameworks import trl
from trainer.frameworks.common.gpu_split import split
from trainer.frameworks.trl import import_config, server
from trainer.frameworks.trl.exported import ACCELERATE, CONFIG, PROMPTS, RUN


class TrlFramework(Packaged):
    """TRL 1.16."""

    name = "trl"
    package = trl
    reader = import_config
    own_script = "TRL's own script"
    names = ExportNames(config=CONFIG, run=RUN, prompts=PROMPTS, launching=frozenset({RUN, ACCELERATE}))

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        configuration, attempt = assignment.trial.configuration, assignment.trial.attempt
        if not server.wants_server(configuration):
            return None
        training, serving = split(place.gpus, configuration)
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
