"""Input of ``autotune start``, and its defaults. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autotune.domain import Objective, Protocol, RewardSpec
from autotune.errors import UsageError
from autotune.frameworks import framework_named
from autotune.wording.numbers import counted
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults

TRL_DEFAULT_GROUP = 8
TRL_DEFAULT_MICRO_BATCH = 8
"""Defaults of ``num_generations`` and ``per_device_train_batch_size`` in TRL and transformers."""

DEFAULT_TASK = "chain_sum"
TASK_PROMPT_LENGTH = 96
"""Longest prompt in tokens of a task without a given length."""
PACKAGES: Mapping[str, str] = {"use_peft": "peft", "load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes"}
"""Key of a TRL configuration -> the module a trial needs if the key is true."""


DEFAULT_SAMPLER = "grey"
"""Default sampler (docs/decisions/0031-grey-box-sampler.md)."""


@dataclass(frozen=True)
class Size:
    """Default size of the workload."""

    rows_per_update: int
    max_completion_length: int


CPU_SIZE = Size(rows_per_update=8, max_completion_length=32)
GPU_SIZE = Size(rows_per_update=64, max_completion_length=256)


def gpu_size(gpus: int, ranks: int) -> Size:
    """Returns the default size: at least 64 rows per update, divisible among ``gpus`` and ``gpus - 1`` ranks.

    So one GPU can become a rollout server. With groups of 8, no update of 64 rows, or of 5 % more or fewer, divides
    among 3 GPUs.

    Args:
        ranks: training ranks of the baseline; the rows divide among them even if not among all three numbers.
    """
    each = TRL_DEFAULT_MICRO_BATCH
    shared = math.lcm(each * gpus, each * max(1, gpus - 1))
    if shared % (each * ranks):
        shared = each * ranks
    return replace(GPU_SIZE, rows_per_update=shared * math.ceil(GPU_SIZE.rows_per_update / shared))


def default_group(framework: str) -> int:
    """Returns the default completions per prompt: the framework's, or TRL's if that is not a group."""
    found = defaults(framework).get("num_generations")
    return found if isinstance(found, int) and found > 1 else TRL_DEFAULT_GROUP


def default_micro_batch(framework: str) -> int:
    """Returns the default rows per rank: the framework's, or TRL's if it has none."""
    found = defaults(framework).get("micro_batch_size")
    return found if isinstance(found, int) else TRL_DEFAULT_MICRO_BATCH


@dataclass(frozen=True)
class Request:
    """Input of ``autotune start``; a missing value is empty or ``None`` until ``with_defaults``."""

    model: str = ""
    """Absolute folder, or hub id."""
    task: str = ""
    """Name of a reasoning-gym dataset."""
    data: str = ""
    """Absolute path of a JSONL file; takes precedence over ``dataset``."""
    dataset: Mapping[str, Any] = field(default_factory=dict)
    """Dataset keys of a configuration, by TRL's names."""
    rewards: tuple[RewardSpec, ...] = ()
    rows_per_update: int | None = None
    max_prompt_length: int | None = None
    """Longest prompt in tokens; ``None``: the longest one in the data."""
    max_completion_length: int | None = None
    framework: str = "trl"
    task_options: Mapping[str, Any] = field(default_factory=dict)
    prompts: int = 256
    """Number of prompts written for a task; trials repeat them."""
    baseline: Mapping[str, KnobValue] = field(default_factory=dict)
    """Knobs of the baseline that differ from the framework's defaults."""
    published: str = ""
    """Name of a published baseline, instead of a configuration of the user's own."""
    space: str | None = None
    """Preset name or YAML path; ``None``: the preset for the machine."""
    sampler: str = DEFAULT_SAMPLER
    objective: Objective = Objective.PER_HOUR
    seed: int = 0
    name: str | None = None
    memory_limit: int | None = None
    gpus: int | None = None
    """GPUs to hold; ``None``: all visible ones of a kind; 0: a run on the CPU."""
    ranks: int | None = None
    """Training processes on a node's CPU; ``None``: one."""
    nodes: int = 1
    """Number of machines per trial, each with ``gpus`` GPUs."""
    python: str = ""
    protocol: Protocol = field(default_factory=Protocol)
    folder: str = ""
    """The user's working directory, to which relative paths of a configuration refer."""
    config: str | None = None
    """Text of the user's own configuration."""
    config_name: str = ""
    accelerate: str = ""
    """Text of the accelerate file that the user launches with."""
    accelerate_name: str = ""
    server: str = ""
    """Text of the script that starts the user's rollout server."""
    server_name: str = ""
    checkout: str = ""
    """Absolute folder of the framework's own source."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that trials receive, as of ``StudySpec``."""
    own_dataset: bool = False
    """True if the configuration names a dataset; trials may have other prompts."""
    own_rewards: bool = False
    """True if the rewards are those of the configuration."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line numbers of the configuration's keys, for messages."""

    @property
    def trains_on_own_data(self) -> bool:
        """True if an export keeps the configuration's dataset: other rewards read the columns of other prompts."""
        return self.own_dataset and not self.task and (self.own_rewards or not self.data)


@dataclass(frozen=True)
class ResolvedRequest(Request):
    """A request with every value set except the longest prompt, which is measured later."""

    rows_per_update: int = 0
    max_completion_length: int = 0


def with_defaults(request: Request, size: Size, bundled: str) -> ResolvedRequest:
    """Returns ``request`` with default task, reward, sizes and model. Raises ``UsageError``: something is missing."""
    source = request.config_name if request.config is not None else ""
    framework = framework_named(request.framework)
    if source and not request.model:
        raise UsageError(f"{source} names no model: add {framework.model_key} to it, or give --model")
    if source and not (request.task or request.data or request.dataset):
        raise UsageError(f"{source} names no dataset: add {framework.data_key} to it, or give --data or --task")
    model = request.model or bundled
    if not model:
        raise UsageError("name a model folder or hub id with --model; `make start` in a checkout brings a small one")
    task = request.task or ("" if request.data or request.dataset else DEFAULT_TASK)
    given = {f.name: getattr(request, f.name) for f in fields(Request)}
    found = ResolvedRequest(
        **{
            **given,
            "model": model,
            "task": task,
            "rewards": request.rewards or _task_reward(request, task),
            "rows_per_update": request.rows_per_update or size.rows_per_update,
            "max_completion_length": request.max_completion_length or size.max_completion_length,
            "max_prompt_length": request.max_prompt_length or (TASK_PROMPT_LENGTH if task else None),
        }
    )
    _check_weights(found)
    return found


def _task_reward(request: Request, task: str) -> tuple[RewardSpec, ...]:
    if task:
        return (RewardSpec("reasoning_gym", task, options=dict(request.task_options)),)
    prompts = "--data" if request.data else request.config_name
    wanted = "--reward my_reward.py:score, or --reward math-verify for a column 'solution' or 'answer'"
    raise UsageError(f"{prompts} gives prompts but no reward: add {wanted}")


def _check_weights(request: Request) -> None:
    weights = request.passthrough.get("reward_weights")
    if weights is not None and len(weights) != len(request.rewards):
        line = request.lines.get("reward_weights")
        where = f"{request.config_name}, line {line}: " if line else ""
        count = counted(len(request.rewards), "reward")
        raise UsageError(f"{where}reward_weights holds {len(weights)} weights for {count}; give one for each")


def packages_of(request: Request) -> tuple[str, ...]:
    """Returns the modules that the workload needs besides the framework."""
    return tuple(dict.fromkeys(PACKAGES[key] for key in PACKAGES if request.passthrough.get(key)))


def study_name(request: Request) -> str:
    """Returns the given name, or one made of model, prompts and framework."""
    if request.name:
        return request.name
    prompts = request.task or Path(request.data or str(request.dataset.get("dataset_name") or "mixture")).stem
    return f"{Path(request.model).name}-{prompts}-{request.framework}".lower()
