"""A framework by what its package ``trainer.frameworks.NAME`` exports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from autotune.domain import Outcome
from autotune.errors import UsageError
from autotune.frameworks.environments import ENVIRONMENTS, Environment
from autotune.frameworks.port import ExportExtras, ExportNames, Source
from autotune.ports import Assignment, Companion, Diagnosis, Place
from search_spaces.batch import training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.framework_names import TITLES
from search_spaces.native import acting
from search_spaces.yaml_edit import YamlEditError
from trainer.child.contract import FailureReason, Phase, Pool, TrialSpec
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import Export, ExportRequest
from trainer.frameworks.common.fields import Field, fields_of
from trainer.frameworks.common.imported import Imported

_LISTENING = (
    "--logging_strategy", "steps", "--logging_steps", "1", "--save_strategy", "no", "--eval_strategy", "no",
    "--eval_on_start", "false", "--report_to", "none", "--push_to_hub", "false", "--log_completions", "false",
)  # fmt: skip
"""Arguments of transformers' trainers: a line for each update, and nothing kept or sent."""


class Package(Protocol):
    """Names that every framework's package exports, besides its reader of configurations."""

    SUPPORTED: frozenset[str]

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> list[str]: ...

    @property
    def render(self) -> Callable[..., TrialSpec]:
        """As ``trainer.frameworks.trl.render``; some take more (``Packaged._more``)."""

    @property
    def export(self) -> Callable[..., Export]:
        """From an ``ExportRequest`` of the package's own (``Packaged._whole``)."""

    def diagnose(self, text: str) -> Diagnosis | None: ...

    def suggest(self, reason: FailureReason, phase: str | Phase | None, pool: Pool | None) -> str: ...


class Reader(Protocol):
    """Reads a user's own configuration of the framework."""

    def named_files(self, text: str, name: str) -> Mapping[str, tuple[str, int]]: ...

    def read_keys(self, text: str, name: str, files: Mapping[str, str]) -> dict[str, Any]: ...

    def import_config(
        self, text: str, name: str, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported: ...


@contextmanager
def as_usage() -> Iterator[None]:
    """Converts a reader's ``ConfigError`` to ``UsageError``."""
    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from None


class Packaged:
    """``port.Integration`` over a package; a framework is a class of its own with these named."""

    name: str
    """In the catalogue."""
    package: Package
    reader: Reader
    names: ExportNames
    own_script: str
    model_key: str = "model_name_or_path"
    data_key: str = "dataset_name"
    not_run: str = ""
    no_server: str = ""
    beside_training: str = "colocate"
    describes: bool = True
    takes_accelerate: bool = False
    takes_server: bool = False
    takes_next_port: bool = False
    script: str = ""
    reads_datasets: bool = True
    unset_completion: int | None = None

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def environment(self) -> Environment:
        return ENVIRONMENTS[self.name]

    @property
    def supported(self) -> frozenset[str]:
        return self.package.SUPPORTED

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> Sequence[str]:
        return self.package.unsupported(configuration)

    def render(self, assignment: Assignment) -> TrialSpec:
        study, trial = assignment.study, assignment.trial
        workload, resources = study.spec.workload, study.spec.resources
        return self.package.render(
            **self._more(assignment),
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

    def _more(self, assignment: Assignment) -> dict[str, Any]:
        """What else the package's ``render`` takes."""
        del assignment
        return {}

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        del spec, place  # for those whose server a trial can start
        if acting(assignment.trial.configuration, self.name).get("rollout_mode") == "server":
            raise ValueError(f"{self.title} trials cannot have a rollout server: {self.no_server or 'none is started'}")
        return None

    def diagnose(self, text: str) -> Diagnosis | None:
        return self.package.diagnose(text)

    def suggest(self, outcome: Outcome) -> str:
        if outcome.reason is None:
            return ""
        return self.package.suggest(outcome.reason, outcome.phase, outcome.pool)

    def named_files(self, source: Source) -> Mapping[str, tuple[str, int]]:
        with as_usage():
            return self.reader.named_files(source.text, source.name)

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        with as_usage():
            return self.reader.read_keys(source.text, source.name, files)

    def serves(self, keys: Mapping[str, Any]) -> bool:
        return keys.get("use_vllm") is True and keys.get("vllm_mode") == "server"

    def fields_of(self, described: Any) -> Mapping[str, Field]:
        return fields_of(described) if self.describes else {}

    def import_config(
        self, source: Source, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported:
        with as_usage():
            return self.reader.import_config(source.text, source.name, fields, processes, files)

    def launched(self, imported: Imported) -> int:
        return imported.processes

    def prompt_length(self, imported: Imported) -> int | None:
        return imported.max_prompt_length

    def export(self, wanted: ExportRequest, extras: ExportExtras) -> Export:
        try:
            return self.package.export(self._whole(wanted, extras))
        except YamlEditError as error:
            raise UsageError(f"your configuration cannot be changed in place: {error}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _whole(self, wanted: ExportRequest, extras: ExportExtras) -> ExportRequest:
        """What the package exports from, for those that want more."""
        del extras
        return wanted

    def on_machine(self, cores: int, gpus: int) -> Sequence[str]:
        del cores, gpus
        return ()

    def listening(self, output: str) -> tuple[str, ...]:
        return (*_LISTENING, "--output_dir", output)
