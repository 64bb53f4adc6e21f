"""A training framework as a user meets it: its configuration files, its exports, the environment it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from typing import Protocol as Port

from autotune.errors import UsageError
from autotune.frameworks.environments import Environment
from autotune.ports import Framework
from search_spaces.configuration import KnobValue
from trainer.frameworks.common.exported import Export, ExportRequest
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.imported import Imported


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


@dataclass(frozen=True)
class ExportExtras:
    """Extra inputs of ``export`` that only some frameworks use."""

    facts: Mapping[str, Mapping[str, Any]]
    """What the trials of the configuration noted, by the note's name."""
    accelerate: str = ""
    """Text of the user's own accelerate file."""
    checkout: str = ""
    """Folder of the framework's own source."""


class Integration(Framework, Port):
    """One framework whole: ``Framework`` runs its trials, the rest reads and writes what its users have. Pure."""

    @property
    def title(self) -> str:
        """Its name in a sentence."""

    not_run: str
    """Why its trials cannot be run yet, a clause; empty where they can."""
    no_server: str
    """Why none of its trials can have a rollout server beside it, a clause; empty where they can."""
    beside_training: str
    """Value of its key for ``rollout_mode`` when the training GPUs also generate."""

    @property
    def environment(self) -> Environment: ...

    @property
    def supported(self) -> frozenset[str]:
        """Knobs one of its trials can set."""

    names: ExportNames
    describes: bool
    """Whether its interpreter is asked which keys it takes, with their types and defaults (``fields_of``)."""
    own_script: str
    """The training program in words: "TRL's own script"."""
    model_key: str
    """The key of its configuration that names the model."""
    data_key: str
    """The key that names the prompts."""
    takes_accelerate: bool
    """Whether an accelerate file beside the configuration says how it is sharded."""
    takes_server: bool
    """Whether a script beside the configuration says how its rollout server is started."""
    takes_next_port: bool
    """Whether its rollout server takes the next port where its own was used a moment before."""
    script: str
    """File in a checkout of the framework's source that its trials run; empty where they need none."""
    reads_datasets: bool
    """Whether the prompts a configuration names can be prepared; else they are given by the command line."""

    @property
    def unset_completion(self) -> int | None:
        """Tokens of the longest completion where neither the configuration nor ``fields_of`` says it."""

    def unsupported(self, configuration: Mapping[str, KnobValue]) -> Sequence[str]:
        """A sentence for each knob or value a trial cannot set."""

    def named_files(self, source: Source) -> Mapping[str, tuple[str, int]]:
        """Key -> (path, line) of the files a user's configuration names. Raises ``UsageError``."""

    def read_keys(self, source: Source, files: Mapping[str, str]) -> Mapping[str, Any]:
        """The configuration's keys as plain values; ``files``: key -> text of ``named_files``.

        Raises:
            UsageError: it cannot be read, or a key is refused.
        """

    def serves(self, keys: Mapping[str, Any]) -> bool:
        """Whether ``read_keys`` tell of a rollout server."""

    def fields_of(self, described: Any) -> Mapping[str, Field]:
        """The keys the interpreter said it takes; none where it is not asked."""

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

    def launched(self, imported: Imported) -> int:
        """Training processes the configuration itself was written for, on all machines; 0 if it does not say."""

    def prompt_length(self, imported: Imported) -> int | None:
        """Tokens of the longest prompt, where the configuration says it."""

    def export(self, wanted: ExportRequest, extras: ExportExtras) -> Export:
        """The files and the command.

        Raises:
            UsageError: the framework cannot be given the configuration, or the user's file cannot be changed in place.
        """

    def on_machine(self, cores: int, gpus: int) -> Sequence[str]:
        """Notes for ``doctor`` on a machine with so many CPU cores and GPUs, a sentence each."""

    def listening(self, output: str) -> tuple[str, ...]:
        """Arguments that ``verify`` adds to the exported command: log each update, save nothing, report to no service.

        Empty where the framework prints no such lines as ``compare_run.read_step`` reads.
        """
