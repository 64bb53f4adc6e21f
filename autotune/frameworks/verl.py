"""Integration of verl: a script that runs ``verl.trainer.main_ppo``, or a file of its overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.frameworks.integration import ExportNames, Integration, Source
from autotune.ports import Assignment
from trainer.frameworks import verl
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.common.exported import PROMPTS, RUN
from trainer.frameworks.common.script_folder import folder_of
from trainer.frameworks.verl import import_config, ray


class VerlFramework(Integration):
    """Integration of verl 0.9.1."""

    name = "verl"
    package = verl
    reader = import_config
    names = ExportNames(config=RUN, run=RUN, prompts=PROMPTS, launching=frozenset({RUN}))
    model_key = "actor_rollout_ref.model.path"
    data_key = "data.train_files"
    no_server = "on GPUs of its own verl generates only beside training, and no trial has run so yet"
    beside_training = "sync"
    describes = False
    reads_datasets = False
    unset_completion = 512
    own_script = "verl.trainer.main_ppo"
    names_reward = False

    def _more(self, assignment: Assignment) -> dict[str, Any]:
        return {"cores": assignment.study.spec.resources.cpu_cores}

    def serves(self, keys: Mapping[str, Any]) -> bool:
        return keys.get("trainer.v1.trainer_mode") == "separate_async"

    def _further_files(self, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
        return {**super()._further_files(source, files), "folder": folder_of(source.name)}

    def launched(self, imported: Imported) -> int:
        del imported  # verl starts its workers itself
        return 0

    def on_machine(self, cores: int, gpus: int) -> tuple[str, ...]:
        held, said = ray.cpus_of({}, max(1, gpus)), ray.cpus({}, max(1, gpus), cores).get(ray.CPUS)
        text = (
            f"verl holds {held} CPUs in Ray's count and would wait for ever with {cores}; trials and exports say {said}"
        )
        return (text,) if cores < held else ()

    def listening(self, output: str) -> tuple[str, ...]:
        del output  # its lines are others
        return ()
