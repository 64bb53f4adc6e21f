"""A training framework as users see it: its trials, configuration files, exports, and required environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Protocol

from autotune.domain import Outcome
from autotune.errors import UsageError
from autotune.frameworks.environments import ENVIRONMENTS, Environment
from autotune.ports import Assignment, Companion, Diagnosis, Place
from search_spaces.batch import training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import TITLES
from search_spaces.native import acting
from search_spaces.yaml_edit import YamlEditError
from trainer import frameworks
from trainer.child.contract import FailureReason, Phase, Pool, TrialSpec
from trainer.frameworks.common.accelerate_file import named_file
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.exported import Export, ExportRequest
from trainer.frameworks.common.fields import Field, fields_of
from trainer.frameworks.common.serving import (
    IN_TRIAL,
    READY_S,
    base_url,
    server_environment,
    split,
    trainer_environment,
)

_LISTENING = (
    "--logging_strategy", "steps", "--logging_steps", "1", "--save_strategy", "no", "--eval_strategy", "no",
    "--eval_on_start", "false", "--report_to", "none", "--push_to_hub", "false", "--log_completions", "false",
)  # fmt: skip
"""Arguments for trainers of transformers: log each update, save nothing, report to no service."""


@dataclass(frozen=True)
class ExportNames:
    """File names of an export."""

    config: str
    """File of the tuned settings; an export without such a file has them in ``run``."""
    run: str
    """Executable script that trains."""
    prompts: str
    """Folder of the prompts."""
    launching: frozenset[str] = frozenset()
    """Files that only launch the training: ``config`` gives the measured settings without them."""
    helper: str = "launch.py"
    """File that applies settings for which the framework has no key."""
    helper_is_imported: bool = False
    """True if the framework's own script imports the helper; False if the helper starts that script."""


@dataclass(frozen=True)
class Source:
    """Text of a user's own configuration and of the files that belong to it."""

    text: str
    name: str
    """File name in messages."""
    accelerate: str = ""
    """Text of the accelerate file; empty without one."""
    accelerate_name: str = ""
    server: str = ""
    """Text of the script that starts the rollout server; empty without one."""
    server_name: str = ""

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for a Python program, whose settings are known only when it runs."""
        if PurePath(self.name).suffix in (".py", ".ipynb"):
            raise UsageError(
                f"{self.name}: a Python program is not read; write what it gives its trainer into a YAML file, a key a "
                "line, and name model, prompts and reward by --model, --data and --reward."
            )


class Package(Protocol):
    """Names that every framework's package exports, besides its reader of configurations."""

    NATIVE: dict[str, str]
    SUPPORTED: frozenset[str]

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> list[str]: ...

    @property
    def render(self) -> Callable[..., TrialSpec]:
        """Function as ``trainer.frameworks.trl.keys``; ``Integration._more`` gives its further arguments."""

    @property
    def export(self) -> Callable[..., Export]:
        """Function as ``trainer.frameworks.trl.export``."""

    def diagnose(self, text: str) -> Diagnosis | None: ...

    def suggest(self, reason: FailureReason, phase: str | Phase | None, pool: Pool | None) -> str: ...


class Reader(Protocol):
    """Reads a user's own configuration of the framework."""

    def read_keys(self, text: str, name: str) -> dict[str, Any]: ...

    @property
    def import_config(self) -> Callable[..., Imported]:
        """Function as ``trainer.frameworks.trl.import_config``, with arguments of ``Integration._further_files``."""


@contextmanager
def as_usage() -> Iterator[None]:
    """Converts a reader's ``ConfigError`` to ``UsageError``."""
    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from None


def companion_of(
    argv: tuple[str, ...], spec: TrialSpec, place: Place, configuration: Mapping[str, KnobValue], led: Mapping[str, Any]
) -> Companion:
    """Builds the launch of the rollout server that ``argv`` starts and that answers at ``/health/``.

    ``led`` are the trainer's settings that connect it to the server. Raises ``ValueError`` if the configuration does
    not fit the GPUs.
    """
    training, serving = split(place.gpus, configuration)
    return Companion(
        argv=argv,
        spec=replace(spec, settings={**spec.settings, **led}),
        health=f"{base_url(place.port)}/health/",
        answer='"ok"',
        ready_s=READY_S,
        environment={**server_environment(serving), **IN_TRIAL},
        trial_environment=trainer_environment(training),
    )


class Integration:
    """One framework, built on the exports of its package ``trainer.frameworks.NAME``.

    Runs trials as ``ports.Framework`` says, and reads and writes the configuration files of the framework's users.
    Pure. A framework is a subclass that sets the attributes below.
    """

    name: str
    """Name in the catalogue."""
    package: Package
    reader: Reader
    names: ExportNames
    own_script: str
    """Name of the training program in messages: "TRL's own script"."""
    model_key: str = "model_name_or_path"
    """Key of the framework's configuration that names the model."""
    data_key: str = "dataset_name"
    """Key of the framework's configuration that names the prompts."""
    no_server: str = ""
    """Clause that explains why no trial can have a rollout server; empty if trials can."""
    beside_training: str = "colocate"
    """Value of the framework's key for ``rollout_mode`` when the training GPUs also generate."""
    describes: bool = True
    """True if the interpreter is asked for the framework's keys, with types and defaults (``fields_of``)."""
    takes_accelerate: bool = False
    """True if an accelerate file can accompany the configuration and define how the model is sharded."""
    takes_server: bool = False
    """True if a script can accompany the configuration and define how the rollout server is started."""
    takes_next_port: bool = False
    """True if the rollout server takes the next port when its own was used a moment before."""
    script: str = ""
    """File in a checkout of the framework's source that trials run; empty if they need no checkout."""
    reads_datasets: bool = True
    """True if the tuner can prepare the prompts that a configuration names; otherwise the command line gives them."""
    names_reward: bool = True
    """True if a configuration must name its reward; otherwise the prompts may contain it."""
    unset_completion: int | None = None
    """Longest completion, in tokens, if neither the configuration nor ``fields_of`` sets it."""

    @property
    def title(self) -> str:
        """Name of the framework in sentences."""
        return TITLES[self.name]

    @property
    def environment(self) -> Environment:
        return ENVIRONMENTS[self.name]

    @property
    def supported(self) -> frozenset[str]:
        """Knobs that the framework's trials can set."""
        return self.package.SUPPORTED

    @property
    def native(self) -> Mapping[str, str]:
        """Knob -> key of the framework whose value is the knob's."""
        return {knob: key for knob, key in self.package.NATIVE.items() if "disable" not in key}

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> Sequence[str]:
        """Returns a sentence for each knob or value that a trial cannot set."""
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
        """Returns additional arguments of the package's ``render``."""
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
        """Returns key -> (path, line) of the files that a user's configuration names. Raises ``UsageError``."""
        with as_usage():
            return named_file(source.accelerate, source.accelerate_name) if source.accelerate else {}

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        """Reads the configuration's keys as plain values; ``files``: key -> text of ``named_files``.

        Raises:
            UsageError: the configuration cannot be read, or a key is refused.
        """
        del files  # for those whose keys they change
        with as_usage():
            return self.reader.read_keys(source.text, source.name)

    def serves(self, keys: Mapping[str, Any]) -> bool:
        """Tells whether the keys of ``read_keys`` configure a rollout server."""
        return keys.get("use_vllm") is True and keys.get("vllm_mode") == "server"

    @property
    def recorded_fields(self) -> Mapping[str, Any]:
        """Fields that an interpreter of the tested version described; empty if no interpreter is asked."""
        path = Path(frameworks.__file__ or "").parent / self.name / "fields.json"
        return json.loads(path.read_text(encoding="utf-8"))["fields"] if self.describes else {}

    def fields_of(self, described: Any) -> Mapping[str, Field]:
        """Returns the keys that the interpreter described; empty if no interpreter is asked."""
        return fields_of(described) if self.describes else {}

    def import_config(
        self, source: Source, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported:
        """Translates the user's configuration to knobs.

        Args:
            fields: keys of the framework, from ``fields_of``.
            files: key -> text, as for ``read_keys``.

        Raises:
            UsageError: naming file, line, key, and the expected value.
        """
        with as_usage():
            beside = self._further_files(source, files)
            return self.reader.import_config(source.text, source.name, fields, processes, files, **beside)

    def _further_files(self, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
        """Returns additional arguments of the reader: the texts of the configuration's companion files."""
        del files
        return {"server": source.server, "server_name": source.server_name} if self.takes_server else {}

    def launched(self, imported: Imported) -> int:
        """Returns the number of training processes, over all machines, that the configuration expects; 0 if unknown."""
        return imported.processes

    def export(self, request: ExportRequest) -> Export:
        """Builds the files of an export and its command.

        Raises:
            UsageError: the framework cannot express the configuration, or the user's file cannot be changed in place.
        """
        try:
            return self.package.export(request)
        except YamlEditError as error:
            raise UsageError(f"your configuration cannot be changed in place: {error}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None

    def added(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Returns ``ExportRequest.added`` for a configuration, from the notes ``facts`` of its trials, by note name."""
        del facts
        return {}

    def on_machine(self, cores: int, gpus: int) -> Sequence[str]:
        """Lists the notes of ``doctor`` on a machine with ``cores`` CPU cores and ``gpus`` GPUs, a sentence each."""
        del cores, gpus
        return ()

    def listening(self, output: str) -> tuple[str, ...]:
        """Returns the arguments that ``verify`` adds to the exported command: log each update, save nothing.

        Empty if the framework prints no lines that ``compare_run.read_step`` can read.
        """
        return (*_LISTENING, "--output_dir", output)
