"""A training framework as a user meets it: its trials, configuration files, exports, and the environment it needs."""

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
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import Export, ExportRequest
from trainer.frameworks.common.fields import Field, fields_of
from trainer.frameworks.common.imported import Imported
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
"""Arguments of transformers' trainers: a line for each update, and nothing kept or sent."""


@dataclass(frozen=True)
class ExportNames:
    """Names of what an export holds."""

    config: str
    """The file that says what was tuned; where an export has none of this name, ``run`` says it."""
    run: str
    """The script that trains; executable."""
    prompts: str
    """Folder of the prompts."""
    launching: frozenset[str] = frozenset()
    """Files that only start it: ``config`` alone trains as measured without them."""
    helper: str = "launch.py"
    """The file that sees to what the framework has no setting for."""
    helper_is_imported: bool = False
    """It does not start the framework's own script, which imports it instead."""


@dataclass(frozen=True)
class Source:
    """A user's own configuration as it was given."""

    text: str
    name: str
    """What messages call its file."""
    accelerate: str = ""
    """Text of the accelerate file beside it; empty without one."""
    accelerate_name: str = ""
    server: str = ""
    """Text of the script that starts the rollout server; empty without one."""
    server_name: str = ""

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for a program: what it gives its trainer is known only where it runs."""
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
        """As ``trainer.frameworks.trl.render``; some take more (``Integration._more``)."""

    @property
    def export(self) -> Callable[..., Export]:
        """As ``trainer.frameworks.trl.export``."""

    def diagnose(self, text: str) -> Diagnosis | None: ...

    def suggest(self, reason: FailureReason, phase: str | Phase | None, pool: Pool | None) -> str: ...


class Reader(Protocol):
    """Reads a user's own configuration of the framework."""

    def read_keys(self, text: str, name: str) -> dict[str, Any]: ...

    @property
    def import_config(self) -> Callable[..., Imported]:
        """As ``trainer.frameworks.trl.import_config`` has it; what is ``_beside`` differs."""


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
    """The rollout server that ``argv`` starts and that answers ``/health/``; ``led`` are the settings that lead to it.

    Raises:
        ValueError: the GPUs cannot be split as the configuration says.
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
    """One framework whole, by what its package ``trainer.frameworks.NAME`` exports.

    It runs trials, as ``ports.Framework`` says, and reads and writes what its users have. Pure. A framework is a class
    of its own with these named.
    """

    name: str
    """In the catalogue."""
    package: Package
    reader: Reader
    names: ExportNames
    own_script: str
    """The training program in words: "TRL's own script"."""
    model_key: str = "model_name_or_path"
    """The key of its configuration that names the model."""
    data_key: str = "dataset_name"
    """The key that names the prompts."""
    no_server: str = ""
    """Why none of its trials can have a rollout server beside it, a clause; empty where they can."""
    beside_training: str = "colocate"
    """Value of its key for ``rollout_mode`` when the training GPUs also generate."""
    describes: bool = True
    """Whether its interpreter is asked which keys it takes, with their types and defaults (``fields_of``)."""
    takes_accelerate: bool = False
    """Whether an accelerate file beside the configuration says how it is sharded."""
    takes_server: bool = False
    """Whether a script beside the configuration says how its rollout server is started."""
    takes_next_port: bool = False
    """Whether its rollout server takes the next port where its own was used a moment before."""
    script: str = ""
    """File in a checkout of the framework's source that its trials run; empty where they need none."""
    reads_datasets: bool = True
    """Whether the prompts a configuration names can be prepared; else they are given by the command line."""
    names_reward: bool = True
    """Whether a configuration has to name its reward; else the prompts may."""
    unset_completion: int | None = None
    """Tokens of the longest completion where neither the configuration nor ``fields_of`` says it."""

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        return TITLES[self.name]

    @property
    def environment(self) -> Environment:
        return ENVIRONMENTS[self.name]

    @property
    def supported(self) -> frozenset[str]:
        """Knobs one of its trials can set."""
        return self.package.SUPPORTED

    @property
    def native(self) -> Mapping[str, str]:
        """Knob -> the key of its own whose value is the knob's."""
        return {knob: key for knob, key in self.package.NATIVE.items() if "disable" not in key}

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> Sequence[str]:
        """A sentence for each knob or value a trial cannot set."""
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
        """Key -> (path, line) of the files a user's configuration names. Raises ``UsageError``."""
        with as_usage():
            return named_file(source.accelerate, source.accelerate_name) if source.accelerate else {}

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        """The configuration's keys as plain values; ``files``: key -> text of ``named_files``.

        Raises:
            UsageError: it cannot be read, or a key is refused.
        """
        del files  # for those whose keys they change
        with as_usage():
            return self.reader.read_keys(source.text, source.name)

    def serves(self, keys: Mapping[str, Any]) -> bool:
        """Whether ``read_keys`` tell of a rollout server."""
        return keys.get("use_vllm") is True and keys.get("vllm_mode") == "server"

    @property
    def recorded_fields(self) -> Mapping[str, Any]:
        """The fields that an interpreter of the tested version described; empty where none is asked."""
        path = Path(frameworks.__file__ or "").parent / self.name / "fields.json"
        return json.loads(path.read_text(encoding="utf-8"))["fields"] if self.describes else {}

    def fields_of(self, described: Any) -> Mapping[str, Field]:
        """The keys the interpreter said it takes; none where it is not asked."""
        return fields_of(described) if self.describes else {}

    def import_config(
        self, source: Source, fields: Mapping[str, Field], processes: int, files: Mapping[str, str]
    ) -> Imported:
        """The configuration understood.

        Args:
            fields: of ``fields_of``.
            files: as of ``read_keys``.

        Raises:
            UsageError: naming file, line, key, and what was expected.
        """
        with as_usage():
            beside = self._beside(source, files)
            return self.reader.import_config(source.text, source.name, fields, processes, files, **beside)

    def _beside(self, source: Source, files: Mapping[str, str]) -> dict[str, Any]:
        """What stands beside the configuration, as the reader takes it."""
        del files
        return {"server": source.server, "server_name": source.server_name} if self.takes_server else {}

    def launched(self, imported: Imported) -> int:
        """Training processes the configuration itself was written for, on all machines; 0 if it does not say."""
        return imported.processes

    def export(self, wanted: ExportRequest) -> Export:
        """The files and the command.

        Raises:
            UsageError: the framework cannot be given the configuration, or the user's file cannot be changed in place.
        """
        try:
            return self.package.export(wanted)
        except YamlEditError as error:
            raise UsageError(f"your configuration cannot be changed in place: {error}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None

    def added(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """``ExportRequest.added`` of a configuration whose trials noted ``facts``, by the note's name."""
        del facts
        return {}

    def on_machine(self, cores: int, gpus: int) -> Sequence[str]:
        """Notes for ``doctor`` on a machine with so many CPU cores and GPUs, a sentence each."""
        del cores, gpus
        return ()

    def listening(self, output: str) -> tuple[str, ...]:
        """Arguments that ``verify`` adds to the exported command: log each update, save nothing, report to no service.

        Empty where the framework prints no such lines as ``compare_run.read_step`` reads.
        """
        return (*_LISTENING, "--output_dir", output)
