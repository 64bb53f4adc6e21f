"""Integration of Open-R1: a recipe, its accelerate file, and the checkout whose script trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.frameworks.integration import ExportNames, Integration, Source, companion_of
from autotune.ports import Assignment, Companion, Place
from trainer.child.contract import TrialSpec
from trainer.frameworks import open_r1
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.common.exported import ACCELERATE, PROMPTS, RUN
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.server_script import unused
from trainer.frameworks.common.serving import PORT_VARIABLE, SERVE
from trainer.frameworks.open_r1 import import_config
from trainer.frameworks.open_r1.export import RECIPE, SCRIPT
from trainer.frameworks.open_r1.keys import FIELDS, server_command, trainer_settings, wants_server


class OpenR1Framework(Integration):
    """Integration of Open-R1 on TRL 0.18."""

    name = "open_r1"
    package = open_r1
    reader = import_config
    names = ExportNames(config=RECIPE, run=RUN, prompts=PROMPTS, launching=frozenset({RUN, ACCELERATE}))
    describes = False
    takes_accelerate = True
    takes_server = True
    script = SCRIPT
    own_script = "Open-R1's own grpo.py"

    def serves(self, keys: Mapping[str, Any]) -> bool:
        return keys.get("use_vllm") is True and keys.get("vllm_mode", "server") == "server"

    def fields_of(self, described: Any) -> Mapping[str, Field]:
        del described  # its versions are pinned, and so are its keys
        return FIELDS

    def import_config(
        self, source: Source, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported:
        found = super().import_config(source, fields, 0 if source.accelerate else processes, files)
        if source.server and not wants_server(found.knobs):
            raise UsageError(str(unused(source.server_name, source.name, "vllm_mode: server")))
        return found

    def _further_files(self, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
        file = {"accelerate": source.accelerate, "accelerate_name": source.accelerate_name or "accelerate.yaml"}
        return {**super()._further_files(source, files), **file}

    def _more(self, assignment: Assignment) -> dict[str, Any]:
        return {"checkout": assignment.study.spec.checkout}

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        configuration = assignment.trial.configuration
        if not wants_server(configuration):
            return None
        argv = server_command(
            configuration,
            spec.model,
            place.python,
            place.port,
            longest=spec.max_prompt_length + spec.max_completion_length,
            revision=spec.revision,
            entry=(SERVE, self.name, str(assignment.directory.resolve())),
        )
        made = companion_of(argv, spec, place, configuration, trainer_settings(place.port))
        port = {PORT_VARIABLE: str(place.group_port)}
        return replace(made, trial_environment={**made.trial_environment, **port})
