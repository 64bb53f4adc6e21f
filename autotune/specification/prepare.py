"""Prepares a study from a request: configuration, interpreter, prompts and space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.domain import Budget, Configuration, Fingerprint, Resources, StudySpec
from autotune.errors import MachineError, UsageError
from autotune.frameworks import Integration, framework_named
from autotune.machine import hardware
from autotune.machine.gpu_choice import ELSEWHERE, usable_resources
from autotune.proposals.samplers import named_sampler
from autotune.running.launch import let_through
from autotune.settings import Settings
from autotune.specification import build, cpu_bf16, prior_knowledge
from autotune.specification.config_faults import read_whole
from autotune.specification.interpreter import Interpreter
from autotune.specification.published_baseline import with_published
from autotune.specification.request import Request, ResolvedRequest, packages_of
from autotune.specification.resolve import Talk, keep_prompts
from autotune.specification.sizing import Open, Sized, Sizing, Stored
from autotune.specification.user_input import is_folder
from autotune.specification.workload_size import Plan
from autotune.wording.numbers import counted
from search_spaces import legality
from search_spaces.configuration import COMPILER, NOT_THERE, KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs.megatron import ENGINE
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace

NO_LIMITS = Budget()


@dataclass(frozen=True)
class Prepared:
    """A study that is ready to run, with sentences for the user."""

    spec: StudySpec
    fingerprint: Fingerprint
    legal: int
    same_learning: int
    scaling: tuple[str, ...] = ()
    """Sentences on a published baseline and on its changes for these GPUs."""
    workload: str = ""
    """Sentence on the size chosen for the budget, or that the budget is too small; empty without one."""
    plan: Plan | None = None
    """Plan that determines the size, while the size may change; ``None``: it is fixed."""
    by_plan: Callable[[Plan], Prepared] | None = None
    """Prepares the study for another plan. Raises as ``prepare``."""


def prepare(
    request: Request,
    settings: Settings,
    talk: Talk,
    stored: Stored,
    bundled: str = "",
    limits: Budget = NO_LIMITS,
) -> Prepared:
    """Reads the user's configuration, probes the interpreter, writes the prompts, tries the rewards, and checks space
    and baseline; stores nothing yet.

    Args:
        settings: has the home folder for answers and prompts.
        bundled: the model folder to use if none is named.
        limits: the budget; a workload of default size is reduced to fit it.

    Raises:
        UsageError: configuration, model, prompts, reward, space or baseline cannot be used.
        MachineError: this machine or interpreter lacks something.
    """
    framework = framework_named(request.framework)
    named_sampler(request.sampler)
    let_through(request.variables)
    settings.home.prepare()
    machine = build.ranked(usable_resources(talk, request.gpus, at_once=limits.at_once), request.ranks)
    machine = replace(machine, framework=framework.name, nodes=request.nodes)
    build.refuse_nodes(framework, machine)
    request, scaling = with_published(request, machine.total_gpus)
    python = Interpreter(request.python, settings.home.root)
    may = Open.of(request, machine, bundled)
    whole = read_whole(request, python, machine, bundled, talk)
    whole, space = searched(whole, framework, machine, talk, nodes=machine.nodes)
    _check_supported(framework, space, whole.baseline)
    if is_folder(whole.model):
        build.model_digest(Path(whole.model))
    found = python.probe(whole.rewards, packages_of(whole), framework.environment)
    budget_s, speed = limits.seconds_on(machine.total_gpus), prior_knowledge.measuring(python, talk)
    sizing = Sizing(python, found, machine, space, budget_s, talk, settings.home.models, stored, speed)

    def specified(sized: Sized) -> Prepared:
        prepared = _specified(sized, sizing, framework, settings, scaling)
        return replace(prepared, by_plan=lambda plan: specified(sizing.by_plan(whole, plan, sized.written)))

    return specified(sizing.settle(whole, may))


def _specified(
    sized: Sized, sizing: Sizing, framework: Integration, settings: Settings, scaling: tuple[str, ...]
) -> Prepared:
    """Returns the study of a workload with fixed size and prompts. Raises ``UsageError``: no combination is legal."""
    data, space = sized.written.data, sizing.space
    whole = replace(sized.request, max_prompt_length=sized.request.max_prompt_length or int(data["longest_prompt"]))
    resources = build.resources_for(sizing.machine, whole, build.model_facts(data), _software(sizing.found.data))
    baseline = build.baseline_of(whole, space, resources)
    check_baseline(whole, framework, space, baseline, resources, sizing.talk)
    legal = space.candidates(baseline, resources, same_learning=False)
    if not any(c.get(name) != baseline.get(name) for c in legal for name in (*space.values, *space.fixed)):
        _check_choice(space, baseline, resources, legal=len(legal))
    prompts = keep_prompts(settings.home.root, Path(data["prompts"]), data["sha256"])
    workload = build.workload_of(whole, prompts, data["sha256"], data.get("commit"))
    spec = build.specification(whole, workload, space, baseline, resources)
    return Prepared(
        spec=spec,
        fingerprint=build.fingerprint_of(spec, hardware.describe(gpus=hardware.visible_gpus()[: resources.gpus])),
        legal=len(legal),
        same_learning=len(space.candidates(baseline, resources, same_learning=True)),
        scaling=scaling,
        workload=sized.words,
        plan=sized.plan,
    )


def searched(
    whole: ResolvedRequest, framework: Integration, machine: Resources, talk: Talk, *, nodes: int = 1
) -> tuple[ResolvedRequest, SearchSpace]:
    """Returns the request with its baseline adapted to this machine, and the search space.

    ``nodes``: nodes of a trial that is to run; 1 for a plan without a run.
    """
    if facts_of(framework.name).trains_on_gpus_only and not machine.gpus:
        raise UsageError(f"{framework.title} trains on GPUs only, and none is held; {ELSEWHERE}")
    build.refuse_server(framework, whole.baseline, machine, nodes=nodes)
    space = build.load_space(whole, machine)
    space, lacked = build.fitted(space, framework)
    served = legality.Case(whole.baseline, machine).server
    space, left_out = build.without_server(space, framework, nodes, served=served)
    for said in (lacked, left_out):
        if said:
            talk(said)
    if not machine.gpus and hardware.emulates_bf16():
        whole, space, left_out = cpu_bf16.avoided(whole, space)
        if left_out:
            talk(left_out)
    if not space.values:
        raise UsageError(
            f"{whole.space or 'the space'}: every knob has a single value; a search needs at least one with two values "
            "or more (`autotune plan` answers about one configuration)"
        )
    return whole, space


def check_baseline(
    whole: ResolvedRequest,
    framework: Integration,
    space: SearchSpace,
    baseline: Configuration,
    resources: Resources,
    talk: Talk,
) -> None:
    """Raises ``UsageError`` if no trial could run ``baseline``; ``talk`` receives notes on surprising legal values."""
    _check_supported(framework, space, baseline)
    build.check_passthrough(whole, baseline, resources)
    build.check_baseline(whole, baseline, resources)
    for note in legality.notes(baseline, resources):
        talk(f"the baseline has {note}")


def present_fingerprint(spec: StudySpec, settings: Settings, talk: Talk) -> Fingerprint:
    """Returns the fingerprint that a trial of a stored study would have on this machine now.

    Raises:
        UsageError: fewer GPUs are visible than the study holds.
        MachineError: the interpreter cannot run the study's trials, or its prompts are gone.
    """
    let_through(spec.variables)
    held = spec.resources.gpus
    usable_resources(talk, held, asked=f"study {spec.name!r} holds {counted(held, 'GPU')}")
    environment = framework_named(spec.framework).environment
    found = Interpreter(spec.python, settings.home.root).probe(spec.workload.rewards, environment=environment)
    if not Path(spec.workload.prompts).is_file():
        raise MachineError(f"the study's prompts are gone: {spec.workload.prompts}; `autotune start` writes them again")
    present = replace(spec, resources=replace(spec.resources, software=_software(found.data)))
    return build.fingerprint_of(present, hardware.describe())


def _software(data: Mapping[str, Any]) -> dict[str, str]:
    packages = {k: str(v) for k, v in data.get("packages", {}).items()}
    compiler = {} if hardware.compiler() else {COMPILER: NOT_THERE}
    return {"python": str(data.get("python", "")), **packages, **compiler}


def _check_supported(framework: Integration, space: SearchSpace, baseline: Mapping[str, KnobValue]) -> None:
    firsts = {name: values[0] for name, values in space.values.items() if UNSET not in values}
    wanted = Configuration({**baseline, **firsts})
    engines = [wanted.with_(**{ENGINE: engine}) for engine in space.values.get(ENGINE, ()) if engine != UNSET]
    missing = next((said for each in (wanted, *engines) if (said := framework.unsupported(each))), ())
    if missing:
        raise UsageError(f"no {framework.title} trial can run this: {'; '.join(missing)}")


def _check_choice(space: SearchSpace, baseline: Configuration, resources: Resources, *, legal: int) -> None:
    """Raises ``UsageError`` if rules forbid everything but the baseline, which is legal in any space."""
    explanation = space.explain(baseline, resources)
    if not explanation.removed and legal:
        return
    none = f"no combination of the space{' but the baseline' if legal else ''} is legal here"
    worst = max(explanation.removed, key=lambda rule: explanation.removed[rule], default="")
    example = f": {explanation.examples[worst].sentence}" if worst in explanation.examples else ""
    raise UsageError(f"{none}; rule {worst} removes most ({explanation.removed.get(worst, 0)}){example}")
