"""Integration of TRL with its rollout server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.frameworks.integration import ExportNames, Integration, Source, as_usage, companion_of
from autotune.ports import Assignment, Companion, Place
from trainer.child.contract import TrialSpec
from trainer.frameworks import trl
from trainer.frameworks.common.accelerate_file import read_file
from trainer.frameworks.common.exported import ACCELERATE, PROMPTS, RUN
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.trl import import_config, server
from trainer.frameworks.trl.export import CONFIG


class TrlFramework(Integration):
    """Integration of TRL 1.16."""

    name = "trl"
    package = trl
    reader = import_config
    own_script = "TRL's own script"
    names = ExportNames(config=CONFIG, run=RUN, prompts=PROMPTS, launching=frozenset({RUN, ACCELERATE}))
    takes_accelerate = True
    takes_server = True

    def named_files(self, source: Source) -> Mapping[str, tuple[str, int]]:
        with as_usage():
            return {**import_config.named_files(source.text, source.name), **super().named_files(source)}

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        with as_usage():
            return import_config.read_keys(source.text, source.name, files)

    def _further_files(self, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
        found = super()._further_files(source, files)
        if source.accelerate:
            found["accelerate"] = read_file(source.accelerate, source.accelerate_name, files)
        return found

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        configuration, attempt = assignment.trial.configuration, assignment.trial.attempt
        if not server.wants_server(configuration):
            return None
        name = f"autotune-{spec.trial}-{attempt}".replace("/", "-")
        argv = server.server_command(
            configuration,
            spec.model,
            place.python,
            place.port,
            longest=spec.max_prompt_length + spec.max_completion_length,
            name=name,
            revision=spec.revision,
            passthrough=spec.passthrough,
            vllm=assignment.study.spec.resources.software.get("vllm", ""),
        )
        led = server.trainer_settings(place.port, place.group_port)
        made = companion_of(argv, spec, place, configuration, led)
        health, mode = f"{base_url(place.port)}/v1/models", server.DEVELOPMENT
        return replace(made, health=health, answer=f'"{name}"', environment={**made.environment, **mode})
