"""Integration of ms-swift: a script with one ``swift rlhf`` or ``megatron rlhf``, or the argument file of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.frameworks.integration import ExportNames, Integration, Source, as_usage, companion_of
from autotune.ports import Assignment, Companion, Place
from trainer.child.contract import TrialSpec
from trainer.frameworks import ms_swift
from trainer.frameworks.common.exported import PROMPTS, RUN
from trainer.frameworks.ms_swift import import_config
from trainer.frameworks.ms_swift.config_text import CONFIG
from trainer.frameworks.ms_swift.megatron import PREFIX
from trainer.frameworks.ms_swift.plugin import PLUGIN
from trainer.frameworks.ms_swift.render import server_arguments, trainer_settings, trial_command, wants_server

ADDED = ("model_type", "template", "system", "use_chat_template")
"""Arguments that a trial adds to load a model and read its prompts if the user sets none."""


class SwiftFramework(Integration):
    """Integration of ms-swift 4.6."""

    name = "ms_swift"
    package = ms_swift
    reader = import_config
    names = ExportNames(CONFIG, RUN, PROMPTS, launching=frozenset({RUN}), helper=PLUGIN, helper_is_imported=True)
    model_key = "model"
    data_key = "dataset"
    reads_datasets = False
    takes_server = True
    takes_next_port = True
    own_script = "swift rlhf"

    def named_files(self, source: Source) -> Mapping[str, tuple[str, int]]:
        with as_usage():
            return import_config.named_files(source.text, source.name)

    def serves(self, keys: Mapping[str, Any]) -> bool:
        if keys.get(f"{PREFIX}vllm_mode") == ["server"]:  # Megatron-SWIFT generates with vLLM alone
            return True
        return keys.get("use_vllm") == ["true"] and keys.get("vllm_mode") == ["server"]

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        configuration = assignment.trial.configuration
        if not wants_server(configuration):
            return None
        arguments = server_arguments(
            configuration,
            spec.model,
            place.port,
            longest=spec.max_prompt_length + spec.max_completion_length,
            passthrough=spec.passthrough,
        )
        led = trainer_settings(place.port, place.group_port)
        argv = trial_command(place.python, str(assignment.directory.resolve()), arguments)
        made = companion_of(argv, spec, place, configuration, led)
        return replace(made, environment={**spec.environment, **made.environment})

    def added(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        words = list(facts.get("arguments", {}).get("argv", ()))
        places = {key: words.index(f"--{key}") + 1 for key in ADDED if f"--{key}" in words}
        return {key: words[at] for key, at in places.items()}
