"""Builds a study's specification from the user's request; pure except for reading the model folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotune.domain import Configuration, Fingerprint, Objective, Resources, StudySpec, Workload
from autotune.errors import UsageError
from autotune.frameworks import Integration, framework_named
from autotune.specification.request import Request, ResolvedRequest, default_group, default_micro_batch, study_name
from autotune.wording.numbers import counted
from search_spaces import baseline as baselines
from search_spaces import legality
from search_spaces.batch import data_ranks, fit, rows_allowed
from search_spaces.configuration import KnobValue, ModelFacts
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS, defaults, key_of
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.legality import passthrough
from search_spaces.own_keys import not_guessed, per_micro_batch, quantized
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for
from trainer.frameworks.common.config_entries import located

RANKS_WITH_GPUS = "--ranks is for runs on a CPU; every GPU held trains, or generates for the others (--gpus N holds N)"


def ranked(machine: Resources, ranks: int | None) -> Resources:
    """Returns the machine with ``ranks`` training processes. Raises ``UsageError`` if it has GPUs, or fewer cores."""
    if ranks is None:
        return machine
    if machine.gpus:
        raise UsageError(RANKS_WITH_GPUS)
    if not 1 <= ranks <= machine.cpu_cores:
        cores = counted(machine.cpu_cores, "core")
        raise UsageError(f"--ranks {ranks}: expected a number from 1 to {machine.cpu_cores}; this machine has {cores}")
    return replace(machine, cpu_ranks=ranks)


def load_space(request: Request, resources: Resources) -> SearchSpace:
    """Loads the requested space, or the preset for this machine. Raises ``SpaceError``."""
    return SearchSpace.load(request.space or preset_for(resources.gpus, resources.nodes))


def fitted(space: SearchSpace, framework: Integration) -> tuple[SearchSpace, str]:
    """Returns ``space`` without a preset's knobs that ``framework`` lacks, and a sentence. Raises ``SpaceError``."""
    found, left = space.fitted(framework.name, framework.supported)
    verb = "is" if len(left) == 1 else "are"
    return found, f"{', '.join(left)} {verb} left out of the space: {framework.title} has no such knob" if left else ""


def planned(space: SearchSpace, framework: Integration, *, server: bool = False) -> tuple[SearchSpace, str]:
    """Returns ``space`` as ``fitted`` does, for a plan rather than a study.

    If vLLM by default generates on separate GPUs, and neither the space nor ``server`` asks for that, it generates on
    the training GPUs. Raises ``SpaceError``.
    """
    space, said = fitted(space, framework)
    listed = {*space.values, *space.fixed}
    silent = "rollout_engine" in listed and listed.isdisjoint(("rollout_mode", "rollout_gpus")) and not server
    if silent and defaults(framework.name).get("rollout_mode") == "server":
        space = replace(space, fixed=Configuration({**space.fixed, "rollout_mode": "colocate"}))
    return space, said


_SERVERS = ("rollout_gpus", "rollout_data_parallel_size")
"""Knobs that apply to a rollout server only."""


def refuse_nodes(framework: Integration, resources: Resources) -> None:
    """Raises ``UsageError`` if a trial of ``framework`` cannot run on several nodes."""
    if resources.nodes > 1 and facts_of(framework.name).starts_processes:
        said = f"{framework.title} starts its processes by a Ray of its own, so a trial of it has one node"
        raise UsageError(f"--nodes {resources.nodes}: {said}; leave it out")


def _server_missing(framework: Integration, nodes: int) -> str:
    """Returns the reason why no trial can have a rollout server; empty if one can."""
    beside = "of several nodes all GPUs train, and no server is started beside them"
    return framework.no_server or (beside if nodes > 1 else "")


def without_server(
    space: SearchSpace, framework: Integration, nodes: int = 1, *, served: bool = False
) -> tuple[SearchSpace, str]:
    """Removes rollout servers from a space if ``framework``'s trials cannot have one; returns the space and a sentence.

    If vLLM by default generates on separate GPUs and the space does not mention a server, the space is set to colocate,
    unless the baseline has a server.

    Args:
        nodes: nodes of a trial.
        served: true if the baseline has a rollout server.

    Raises:
        UsageError: the space allows a server only.
        SpaceError: nothing is left to search.
    """
    data = space.as_json()
    listed = (data["knobs"].get(name, ()) for name in ("rollout_mode", "rollout_engine"))
    mode, engine = ([*each] if isinstance(each, list | tuple) else [each] for each in listed)
    silent = not mode and "vllm" in engine and defaults(framework.name).get("rollout_mode") == "server"
    why = _server_missing(framework, nodes)
    if not why:
        silent = silent and not served and "rollout_gpus" not in data["knobs"]
        return (_colocated(data, data["knobs"]), "") if silent else (space, "")
    if not ("server" in mode or silent):
        return space, ""
    if mode == ["server"]:
        raise UsageError(f"the space has no rollout_mode but server; {_no_server(framework, 'rollout_mode', why)}.")
    knobs = {name: values for name, values in data["knobs"].items() if name not in _SERVERS}
    return _colocated(data, knobs), "" if silent else f"rollout_mode server is left out of the space: {why}"


def _colocated(data: Mapping[str, Any], knobs: Mapping[str, Any]) -> SearchSpace:
    return SearchSpace.from_json({**data, "knobs": {**knobs, "rollout_mode": "colocate"}})


def refuse_server(
    framework: Integration,
    configuration: Mapping[str, KnobValue],
    resources: Resources,
    name: str = "",
    lines: Mapping[str, int] = MappingProxyType({}),
    nodes: int = 1,
) -> None:
    """Refuses a rollout server that no trial of ``framework`` can have.

    Args:
        configuration: the user's own knobs; missing ones have the framework's defaults.
        resources: resources of the machine; without a GPU, other rules refuse a server.
        name: name of the user's configuration; empty without one.
        nodes: nodes of a trial that is to run; 1 if the machine is only planned for.

    Raises:
        UsageError: ``configuration`` has a server.
    """
    why = _server_missing(framework, nodes)
    if not why or not resources.gpus or not legality.Case(configuration, resources).server:
        return
    key = key_of("rollout_mode", framework.name)
    said = f"{key} server: {_no_server(framework, key, why)}"
    raise UsageError(located(said, name, lines) if name else f"{said}.")


def _no_server(framework: Integration, key: str, why: str) -> str:
    said = f"{framework.title} trials cannot have a rollout server, because {why}"
    return f"{said}; set {key} to {'colocate' if key == 'rollout_mode' else framework.beside_training}"


def baseline_of(request: ResolvedRequest, space: SearchSpace, resources: Resources) -> Configuration:
    """Returns the baseline: the framework's defaults, the accumulation that gives the rows, and the user's values.

    GPUs of a rollout server do not train. If the others cannot divide the rows, an update has the nearest number of
    rows that they can, at most 5 % away. Raises ``UsageError``: there is none, or a rule forbids the combination.
    """
    rows, unset = request.rows_per_update, defaults(resources.framework)
    own: dict[str, KnobValue] = {
        "num_generations": min(default_group(resources.framework), rows),
        "rollout_engine": unset.get("rollout_engine", "transformers"),
    }
    batch = ("micro_batch_size", "gradient_accumulation_steps")
    fixed = {name: value for name, value in space.fixed.items() if name not in own and name not in batch}
    if space.fixed.get("rollout_mode") == "server" and space.fixed.get("rollout_gpus"):  # these do not train
        own["rollout_engine"] = space.fixed.get("rollout_engine", own["rollout_engine"])
    values = {**own, **fixed, **request.baseline}
    ranks = data_ranks(values, resources)
    if request.config is None:
        values = baselines.fitted(values, resources)
    if "micro_batch_size" not in values:
        values["micro_batch_size"] = _micro_batch(values, ranks, rows, resources.framework)
    if "gradient_accumulation_steps" not in values:
        values["gradient_accumulation_steps"] = _accumulation(values, ranks, rows)
    return space.complete(values, resources)


def _micro_batch(values: Mapping[str, KnobValue], ranks: int, rows: int, framework: str) -> int:
    """Returns the framework's micro-batch, or the largest smaller one that divides an update. Raises ``UsageError``."""
    usual = min(default_micro_batch(framework), max(1, rows // ranks))
    if "gradient_accumulation_steps" in values:
        return usual
    for micro in range(usual, 0, -1):
        if _reached({**values, "micro_batch_size": micro}, ranks, rows) is not None:
            return micro
    raise UsageError(f"{rows} rows per update cannot be shared by {_choose(ranks, ranks)}")


def _accumulation(values: Mapping[str, KnobValue], ranks: int, rows: int) -> int:
    """Returns the accumulation for ``rows`` per update, or within the tolerance of it. Raises ``UsageError``."""
    found, micro = _reached(values, ranks, rows), int(values["micro_batch_size"])
    if found is None:
        made = f"cannot be made of micro-batches of {micro} rows on {_choose(ranks, micro * ranks)}"
        raise UsageError(f"{rows} rows per update {made}")
    return found


def _reached(values: Mapping[str, KnobValue], ranks: int, rows: int) -> int | None:
    micro, group = int(values["micro_batch_size"]), int(values["num_generations"])
    found, _ = fit(ranks, micro, group, values.get("steps_per_generation", ACCUMULATION), rows)
    return found if rows_allowed(ranks * micro * found, rows, ranks) else None


def _choose(ranks: int, multiple: int) -> str:
    return f"{ranks} training process{'es' if ranks > 1 else ''}; choose --effective-batch as a multiple of {multiple}"


def broken_rules(request: Request, baseline: Configuration, resources: Resources) -> list[tuple[str, str]]:
    """Returns (rule, sentence) of every rule that the baseline breaks, with the line of its key."""
    return [(v.rule, _located(v.sentence, request)) for v in legality.check_baseline(baseline, resources)]


def _located(sentence: str, request: Request) -> str:
    """Returns ``sentence`` with file and line of the first key or knob in it; unchanged without a file."""
    if request.config is None:
        return sentence
    keys = {name: key_of(name, request.framework) for name in KNOBS}
    knobs = {name: request.lines[key] for name, key in keys.items() if key in request.lines}
    placed = located(sentence, request.config_name, {**knobs, **request.lines})
    framework = framework_named(request.framework)
    # In the user's own words, but for a knob beside which the sentence has its key in brackets.
    native = {knob: key for knob, key in framework.native.items() if f"{knob} (" not in placed}
    told = re.sub(r"(?<![\w.-])[a-z][a-z0-9_]+\b(?!\.\w)", lambda word: native.get(word[0], word[0]), placed)
    return told.replace(framework.name, framework.title)


def check_baseline(request: Request, baseline: Configuration, resources: Resources) -> None:
    """Raises ``UsageError`` with every rule the baseline breaks, or if its sequences exceed the model's positions."""
    prompt, completion = resources.max_prompt_length or 0, resources.max_completion_length or 0
    limit = resources.model.max_positions
    if limit is not None and prompt + completion > limit:
        longest = f"a prompt of {prompt} tokens with a completion of {completion}"
        said = f"max_completion_length: {longest} is longer than the model's {limit} positions"
        raise UsageError(_located(said, request))
    violations = legality.check_baseline(baseline, resources)
    if violations:
        runs = {v.rule for v in violations} == {"fresh_completions"}  # generations that end within an update
        kind = "no trial can measure the baseline, which the framework runs" if runs else "the baseline is not legal"
        said = f"{kind}: " + " ".join(v.sentence for v in violations)
        if {v.rule for v in violations if not v.nearest} == {"rows_per_update"}:
            said += " Say with --effective-batch how many rows an update has."
        raise UsageError(_located(said, request))


def resources_for(
    machine: Resources, request: ResolvedRequest, facts: ModelFacts, software: Mapping[str, str]
) -> Resources:
    """Returns the machine's resources with the workload's fixed quantities."""
    group = min(default_group(request.framework), request.rows_per_update)
    return replace(
        machine,
        framework=request.framework,
        rows_per_update=request.rows_per_update,
        num_generations=int(request.baseline.get("num_generations", group)),
        max_prompt_length=request.max_prompt_length or 0,
        max_completion_length=request.max_completion_length,
        model=facts,
        software=dict(software),
        per_micro_batch=per_micro_batch(request.framework, request.passthrough),
        quantized=quantized(request.passthrough),
        not_guessed=not_guessed(request.framework, request.passthrough),
    )


def model_facts(prepared: Mapping[str, Any]) -> ModelFacts:
    """Returns the model's facts from the answer of ``Interpreter.prepare``; ignores facts unknown to this version."""
    return ModelFacts(**{k: v for k, v in prepared["model"].items() if k in ModelFacts.__dataclass_fields__})


def model_digest(folder: Path, parts: int = 17, size_of_part: int = 1 << 16) -> str:
    """Returns the SHA-256 of a model folder's names, sizes and ``parts`` of each file, by which checkpoints differ.

    Raises:
        UsageError: it is not a model folder, or cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no model folder {folder}")
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} is not a model folder: it has no config.json")
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    if not any(p.suffix in (".safetensors", ".bin") for p in files):
        raise UsageError(f"{folder} holds no weights (*.safetensors or *.bin)")
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}:{size}\n".encode())
        try:
            with path.open("rb") as stream:
                for part in range(parts):
                    stream.seek(part * max(0, size - size_of_part) // (parts - 1))
                    digest.update(stream.read(size_of_part))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    return digest.hexdigest()


def workload_of(request: ResolvedRequest, prompts: Path, prompts_sha256: str, commit: str | None) -> Workload:
    """Returns the fixed part of the study; ``commit`` is the commit of a hub model."""
    return Workload(
        model=request.model,
        prompts=str(prompts),
        prompts_sha256=prompts_sha256,
        rewards=request.rewards,
        rows_per_update=request.rows_per_update,
        max_prompt_length=request.max_prompt_length or 0,
        max_completion_length=request.max_completion_length,
        passthrough=request.passthrough,
        model_sha256=commit or model_digest(Path(request.model)),
    )


def check_passthrough(request: Request, baseline: Configuration, resources: Resources) -> None:
    """Raises ``UsageError`` with each of the user's keys that the framework would refuse later, with its line."""
    found = passthrough.check_passthrough(request.passthrough, baseline, resources)
    if found:
        raise UsageError("; ".join(located(v.sentence, request.config_name, request.lines) for v in found))


def specification(
    request: Request, workload: Workload, space: SearchSpace, baseline: Configuration, resources: Resources
) -> StudySpec:
    """Returns the whole specification. Raises ``UsageError``: a CPU run ranks by GPU-hours."""
    if request.objective is Objective.PER_GPU_HOUR and not resources.gpus:
        raise UsageError(f"--objective {request.objective} counts GPU-hours, and this is a CPU run; leave it out")
    return StudySpec(
        name=study_name(request),
        workload=workload,
        framework=request.framework,
        space=space.as_json(),
        baseline=baseline,
        resources=resources,
        sampler=request.sampler,
        objective=request.objective,
        seed=request.seed,
        protocol=request.protocol,
        memory_limit=request.memory_limit,
        python=request.python,
        user_config=request.config or "",
        user_folder=request.folder if request.config else "",
        user_prompts=request.trains_on_own_data,
        user_accelerate=request.accelerate,
        checkout=request.checkout,
        variables=request.variables,
    )


def fingerprint_of(spec: StudySpec, hardware: Mapping[str, Any]) -> Fingerprint:
    """Returns everything that affects the figures: hardware, software and workload."""
    return Fingerprint(hardware=dict(hardware), software=dict(spec.resources.software), workload=spec.workload.digest)
