"""From what the user asked for to a complete study specification; pure but for reading the model folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.domain import (
    Configuration,
    Fingerprint,
    Protocol,
    Resources,
    RewardSpec,
    StudySpec,
    Workload,
)
from autotune.errors import UsageError
from search_spaces import legality
from search_spaces.configuration import KnobValue, ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import encode

CPU_PRESET = "cpu"
GPU_PRESET = "single-gpu"

TRL_DEFAULT_GROUP = 8
TRL_DEFAULT_MICRO_BATCH = 8
"""``num_generations`` and ``per_device_train_batch_size`` of TRL and transformers when nobody sets them."""


@dataclass(frozen=True)
class Request:
    """What ``autotune start`` was asked for."""

    model: Path
    task: str
    """reasoning-gym dataset."""
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    framework: str = "trl"
    task_options: Mapping[str, Any] = field(default_factory=dict)
    prompts: int = 256
    """How many prompts are written; trials go round them."""
    baseline: Mapping[str, KnobValue] = field(default_factory=dict)
    """Knobs of the baseline that differ from the framework's defaults."""
    space: str | None = None
    """Preset name or YAML path; ``None`` takes the preset for the machine."""
    sampler: str = "tpe"
    seed: int = 0
    name: str | None = None
    memory_limit: int | None = None
    python: str = ""
    protocol: Protocol = field(default_factory=Protocol)


def reward_of(request: Request) -> RewardSpec:
    """The task's own verifier."""
    return RewardSpec(kind="reasoning_gym", name=request.task, options=dict(request.task_options))


def study_name(request: Request) -> str:
    """The given name, or one that says model, task and framework."""
    return request.name or f"{request.model.name}-{request.task}-{request.framework}".lower()


def load_space(request: Request, resources: Resources) -> SearchSpace:
    """The space asked for, or the preset for this machine. Raises ``SpaceError``."""
    preset = GPU_PRESET if resources.device == "cuda" else CPU_PRESET
    return SearchSpace.load(request.space or preset)


def baseline_of(request: Request, space: SearchSpace, resources: Resources) -> Configuration:
    """The framework's defaults, with accumulation derived for the rows asked for, and the user's own values on top.

    Raises:
        UsageError: the rows cannot be reached, or a rule forbids the combination.
    """
    ranks = resources.training_processes
    given = dict(request.baseline)
    micro = int(given.get("micro_batch_size", min(TRL_DEFAULT_MICRO_BATCH, max(1, request.rows_per_update // ranks))))
    if request.rows_per_update % (micro * ranks):
        raise UsageError(
            f"{request.rows_per_update} rows per update cannot be made of micro-batches of {micro} rows on "
            f"{ranks} training process{'es' if ranks > 1 else ''}; "
            f"choose --rows-per-update as a multiple of {micro * ranks}"
        )
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": request.rows_per_update // (micro * ranks),
        "num_generations": min(TRL_DEFAULT_GROUP, request.rows_per_update),
        "rollout_engine": "transformers",
    }
    fixed = {name: value for name, value in space.fixed.items() if name not in values}
    return space.complete({**values, **fixed, **given}, resources)


def check_baseline(baseline: Configuration, resources: Resources) -> None:
    """Raises ``UsageError`` with every rule the baseline breaks."""
    violations = legality.check(baseline, resources)
    if violations:
        raise UsageError("the baseline is not legal: " + "; ".join(v.sentence for v in violations))


def resources_for(machine: Resources, request: Request, facts: ModelFacts, software: Mapping[str, str]) -> Resources:
    """The machine's resources with the workload's fixed quantities filled in."""
    return replace(
        machine,
        framework=request.framework,
        rows_per_update=request.rows_per_update,
        num_generations=int(request.baseline.get("num_generations", min(TRL_DEFAULT_GROUP, request.rows_per_update))),
        max_prompt_length=request.max_prompt_length,
        max_completion_length=request.max_completion_length,
        model=facts,
        software=dict(software),
    )


def model_digest(folder: Path) -> str:
    """SHA-256 over the names, sizes and small files of a model folder, so that another model there is noticed.

    Raises:
        UsageError: the folder is missing, or holds no config or no weights.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a model folder")
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} is not a model folder: it has no config.json")
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    if not any(p.suffix in (".safetensors", ".bin") for p in files):
        raise UsageError(f"{folder} holds no weights (*.safetensors or *.bin)")
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}:{size}\n".encode())
        if path.suffix == ".json" and size < 1_000_000:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def workload_of(request: Request, prompts: Path, prompts_sha256: str) -> Workload:
    """The fixed part of the study."""
    return Workload(
        model=str(request.model),
        prompts=str(prompts),
        prompts_sha256=prompts_sha256,
        reward=reward_of(request),
        rows_per_update=request.rows_per_update,
        max_prompt_length=request.max_prompt_length,
        max_completion_length=request.max_completion_length,
        model_sha256=model_digest(request.model),
    )


def specification(
    request: Request, workload: Workload, space: SearchSpace, baseline: Configuration, resources: Resources
) -> StudySpec:
    """The whole specification."""
    return StudySpec(
        name=study_name(request),
        workload=workload,
        framework=request.framework,
        space=space.as_json(),
        baseline=baseline,
        resources=resources,
        sampler=request.sampler,
        seed=request.seed,
        protocol=request.protocol,
        memory_limit=request.memory_limit,
        python=request.python,
    )


def fingerprint_of(spec: StudySpec, hardware: Mapping[str, Any]) -> Fingerprint:
    """Everything that moves the numbers."""
    text = json.dumps(encode(spec.workload), sort_keys=True, separators=(",", ":"))
    return Fingerprint(
        hardware=dict(hardware),
        software=dict(spec.resources.software),
        workload=hashlib.sha256(text.encode()).hexdigest(),
    )


def differences(before: StudySpec, after: StudySpec) -> list[str]:
    """``place: before -> after`` for everything in which two specifications differ."""
    return differing(before.identity(), after.identity())


def differing(before: Any, after: Any, where: str = "") -> list[str]:
    """``place: before -> after`` for every leaf in which two pieces of plain data differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: list[str] = []
        for key in sorted(set(before) | set(after)):
            place = f"{where}.{key}" if where else str(key)
            found += differing(before.get(key), after.get(key), place)
        return found
    if before == after:
        return []
    return [f"{where}: {_short(before)} -> {_short(after)}"]


def _short(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
