"""TRL behind the port, with its rollout server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.frameworks.packaged import Packaged, as_usage
from autotune.frameworks.port import ExportNames, Source
from autotune.ports import Assignment, Companion, Place
from trainer.child.contract import TrialSpec
from trainer.frameworks import trl
from trainer.frameworks.common.accelerate_file import FILE_KEY, named_file, read_file
from trainer.frameworks.common.exported import ACCELERATE, PROMPTS, RUN
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.gpu_split import split
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.serving import IN_TRIAL, READY_S, base_url, trainer_environment
from trainer.frameworks.trl import import_config, server
from trainer.frameworks.trl.import_config import NO_LAUNCH
from trainer.frameworks.trl.launching import CONFIG


def _own(files: Mapping[str, str]) -> dict[str, str]:
    """Without the file that the accelerate file names."""
    return {key: text for key, text in files.items() if key != FILE_KEY}


class TrlFramework(Packaged):
    """TRL 1.16."""

    name = "trl"
    package = trl
    reader = import_config
    own_script = "TRL's own script"
    names = ExportNames(config=CONFIG, run=RUN, prompts=PROMPTS, launching=frozenset({RUN, ACCELERATE}))
    takes_accelerate = True
    takes_server = True

    def named_files(self, source: Source) -> Mapping[str, tuple[str, int]]:
        with as_usage():
            beside = named_file(source.accelerate, source.accelerate_name) if source.accelerate else {}
            return {**self.reader.named_files(source.text, source.name), **beside}

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        return super().read_keys(source, _own(files))

    def import_config(
        self, source: Source, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported:
        with as_usage():
            launch = read_file(source.accelerate, source.accelerate_name, files) if source.accelerate else NO_LAUNCH
            return import_config.import_config(
                source.text,
                source.name,
                fields,
                processes,
                _own(files),
                launch,
                server=source.server,
                server_name=source.server_name,
            )

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
            health=f"{base_url(place.port)}/v1/models",
            answer=f'"{name}"',
            ready_s=READY_S,
            environment={**server.server_environment(serving), **IN_TRIAL},
            trial_environment=trainer_environment(training),
        )
