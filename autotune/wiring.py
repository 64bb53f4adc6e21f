"""The one place that chooses concrete classes and puts a study together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotune.domain import SWEEP, Budget, Configuration, Fingerprint, Resources, Study, StudySpec, Trial
from autotune.errors import MachineError, NotFoundError, UsageError
from autotune.frameworks import Integration, framework_named, runnable
from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from autotune.machine.held_gpus import usable_resources
from autotune.ports import Clock, Observer, Proposer, StopToken, Store, TrialRunner
from autotune.proposals import SweepProposer, make_proposer
from autotune.proposals.ahead import ProposesAhead
from autotune.proposals.forecasts import Background, Task
from autotune.running.keeper import Keeper, restores_memory
from autotune.running.local import LocalRunner, home_tag
from autotune.running.preloads import Preloads, most_alive
from autotune.settings import Settings
from autotune.specification import build, cpu_bf16, prior_knowledge
from autotune.specification.interpreter import Interpreter, check_rewards, probe
from autotune.specification.published_baseline import with_published
from autotune.specification.request import Complete, Request, packages_of
from autotune.specification.resolve import Talk, complete, keep_prompts
from autotune.specification.sizing import Open, Sizing
from autotune.specification.user_input import is_folder
from autotune.store import Patience, open_store
from autotune.study.budget import total_s
from autotune.study.control import Control
from autotune.study.identity import check_machine, find_or_create
from autotune.study.loop import StudyLoop
from autotune.study.schedule import Steps, next_step
from search_spaces import legality
from search_spaces.configuration import COMPILER, NOT_THERE
from search_spaces.space import SearchSpace

__all__ = [
    "Prepared",
    "begun",
    "check_machine",
    "check_rewards",
    "complete",
    "directory_of",
    "find_or_create",
    "loop",
    "measured",
    "open_store_for",
    "prepare",
    "present_fingerprint",
    "probe",
    "proposer_for",
    "runner_for",
    "sweep_proposer",
    "usable_resources",
]

READERS_PATIENCE = Patience(total_s=5.0)
"""With a server that is away: whoever looks at a page or a command's output is told soon."""


def open_store_for(settings: Settings, stop: StopToken | None = None) -> Store:
    """The database of the settings; its home is created if need be.

    A tuner gives its ``stop``, and waits for a server that is away until level 2 of it; a reader waits a moment.
    """
    settings.home.prepare()
    return open_store(settings.database, stop=stop, patience=Patience() if stop is not None else READERS_PATIENCE)


def check_store(settings: Settings) -> None:
    """Refuse a home or a database file that cannot be used, before a preparation that takes long; creates neither."""
    if settings.home.root.exists():
        settings.home.prepare()
    if "://" not in settings.database and Path(settings.database).is_file():
        open_store_for(settings).close()


def prepare(
    request: Request, settings: Settings, talk: Talk, bundled: str = "", limits: Budget = NO_LIMITS
) -> Prepared:
    """Read the user's configuration, probe the interpreter, write the prompts, try the rewards, and judge space
    and baseline; nothing is stored yet.

    Args:
        request: what was asked for.
        settings: where answers and prompts are kept.
        talk: told what takes time.
        bundled: the model folder to take when none is named.
        limits: what may be spent; a workload nobody chose is made small enough for it.

    Raises:
        UsageError: configuration, model, prompts, reward, space or baseline cannot be used.
        MachineError: this machine or interpreter lacks something.
    """
    framework = runnable(request.framework)
    named_sampler(request.sampler)
    settings.home.prepare()
    machine = build.ranked(usable_resources(talk, request.gpus), request.ranks)
    machine = replace(machine, framework=framework.name)
    request, scaling = with_published(request, machine.gpus * machine.nodes)
    python = Interpreter(request.python, settings.home.root)
    may = Open.of(request, machine, bundled)
    whole = complete(request, python, machine, bundled, talk)
    whole, space = _searched(whole, framework, machine, talk)
    if is_folder(whole.model):
        build.model_digest(Path(whole.model))
    found = python.probe(whole.rewards, packages_of(whole), framework.environment)
    sizing = Sizing(
        python=python,
        found=found,
        machine=machine,
        space=space,
        budget_s=total_s(limits, machine.gpus),
        talk=talk,
        models=settings.home.models,
        stored=lambda name: stored(settings, name),
        speed=prior_knowledge.measuring(python, talk),
    )
    sized = sizing.settle(whole, may)
    whole, written = sized.request, sized.written
    whole = replace(whole, max_prompt_length=whole.max_prompt_length or int(written.data["longest_prompt"]))
    facts, software = build.model_facts(written.data), _software(found.data)
    resources = build.resources_for(machine, whole, facts, software)
    baseline = build.baseline_of(whole, space, resources)
    legal = _judged(whole, framework, space, baseline, resources, talk)
    prompts = keep_prompts(settings.home.root, Path(written.data["prompts"]), written.data["sha256"])
    workload = build.workload_of(whole, prompts, written.data["sha256"], written.data.get("commit"))
    spec = build.specification(whole, workload, space, baseline, resources)
    return Prepared(
        spec=spec,
        fingerprint=build.fingerprint_of(spec, hardware.describe()),
        legal=legal,
        same_learning=len(space.candidates(baseline, resources, same_learning=True)),
        scaling=scaling,
        workload=sized.words,
    )


def _searched(whole: Complete, framework: Integration, machine: Resources, talk: Talk) -> tuple[Complete, SearchSpace]:
    """The space of the search, and the request with what this machine changes of its baseline."""
    build.refuse_server(framework, whole.baseline, machine)
    space = build.load_space(whole, machine)
    if whole.space is None:
        space = build.fitted(space, framework)
    space, left_out = build.without_server(space, framework)
    if left_out:
        talk(left_out)
    if not machine.gpus and hardware.emulates_bf16():
        whole, space, left_out = cpu_bf16.avoided(whole, space)
        if left_out:
            talk(left_out)
    return whole, space


def _judged(
    whole: Complete,
    framework: Integration,
    space: SearchSpace,
    baseline: Configuration,
    resources: Resources,
    talk: Talk,
) -> int:
    """How many combinations are legal. Raises ``UsageError`` where none is, or where the baseline is not."""
    build.check_passthrough(whole, baseline, resources)
    build.check_baseline(whole, baseline, resources)
    for note in legality.notes(baseline, resources):
        talk(f"the baseline has {note}")
    _check_supported(framework, space, baseline)
    legal = space.candidates(baseline, resources, same_learning=False)
    if not legal:
        raise UsageError(_nothing_legal(space, baseline, resources))
    return len(legal)


def stored(settings: Settings, name: str) -> StudySpec | None:
    """The study of that name, if there is one; no database is created by looking."""
    if "://" not in settings.database and not Path(settings.database).is_file():
        return None
    store = open_store_for(settings)
    try:
        return store.study(name).spec
    except NotFoundError:
        return None
    finally:
        store.close()


def begun(
    study: Study, store: Store, settings: Settings, fingerprint: Fingerprint, talk: Talk, *, history: bool = True
) -> Study:
    """See ``prior_knowledge.begun``; to be called before the first trial."""
    speed = prior_knowledge.measuring(Interpreter(study.spec.python, settings.home.root), talk)
    return prior_knowledge.begun(study, store, speed, fingerprint.hardware, talk, history=history)


def measured(study: Study, store: Store, settings: Settings, fingerprint: Fingerprint, talk: Talk) -> Study:
    """See ``prior_knowledge.recorded``; to be called while no trial runs."""
    speed = prior_knowledge.measuring(Interpreter(study.spec.python, settings.home.root), talk)
    return prior_knowledge.recorded(study, store, speed, fingerprint.hardware, talk)


def present_fingerprint(spec: StudySpec, settings: Settings, talk: Talk) -> Fingerprint:
    """What a trial of a stored study would be measured on here and now.

    Raises:
        UsageError: not so many GPUs as the study holds are visible.
        MachineError: the interpreter cannot run the study's trials, or its prompts are gone.
    """
    held = spec.resources.gpus
    usable_resources(talk, held, asked=f"study {spec.name!r} holds {held} GPU{'' if held == 1 else 's'}")
    environment = framework_named(spec.framework).environment
    found = Interpreter(spec.python, settings.home.root).probe(spec.workload.rewards, environment=environment)
    if not Path(spec.workload.prompts).is_file():
        raise MachineError(f"the study's prompts are gone: {spec.workload.prompts}; `autotune start` writes them again")
    present = replace(spec, resources=replace(spec.resources, software=_software(found.data)))
    return build.fingerprint_of(present, hardware.describe())


def loop(
    study: Study,
    budget: Budget,
    store: Store,
    settings: Settings,
    observer: Observer,
    stop: StopToken,
    fingerprint: Fingerprint,
    *,
    allow_busy: bool = False,
    warm: bool = False,
    proposer: Proposer | None = None,
    steps: Steps = next_step,
) -> StudyLoop:
    """The loop of a stored study with the real parts; it also does what is asked for through the database.

    ``warm`` forks trials from a process that has imported everything, and on a GPU lets one run several search trials.
    Its sampler chooses in the order of a search, unless ``proposer`` and ``steps`` say otherwise.
    """
    clock = SystemClock()
    control = Control(store, study.id, stop, clock)
    used = warm and restores_memory(study.spec.resources.device)
    keeper = Keeper(settings.home.workers(study.id, study.spec.name), clock) if used else None
    return StudyLoop(
        study=study,
        budget=budget,
        store=store,
        proposer=proposer or proposer_for(study.spec, prior_knowledge.background(study, store)),
        runner=runner_for(study.spec, settings, clock, allow_busy=allow_busy, keeper=keeper, preload=warm),
        clock=clock,
        observer=observer,
        stop=control,
        directory_of=directory_of(settings, study),
        fingerprint=fingerprint.digest,
        requests=control,
        steps=steps,
    )


def proposer_for(spec: StudySpec, known: Background | None = None) -> Proposer:
    """``known`` is what the sampler begins with. Raises ``UsageError`` for an unknown sampler."""
    space = SearchSpace.from_json(spec.space)
    if spec.sampler == SWEEP:
        return sweep_proposer(spec, rows=None)
    task = Task.of(spec)
    return ProposesAhead(
        make_proposer(space, spec.baseline, spec.resources, spec.sampler, spec.seed, task=task, background=known)
    )


def sweep_proposer(spec: StudySpec, *, rows: int | None, same_learning: bool = False) -> SweepProposer:
    """Who goes through the rows of a table; see ``SweepProposer``."""
    space = SearchSpace.from_json(spec.space)
    return SweepProposer(space, spec.baseline, spec.resources, rows=rows, same_learning=same_learning, seed=spec.seed)


def runner_for(
    spec: StudySpec,
    settings: Settings,
    clock: Clock,
    *,
    allow_busy: bool = False,
    keeper: Keeper | None = None,
    preload: bool = False,
) -> TrialRunner:
    """Trials on this machine.

    Args:
        keeper: lets a process run several trials; without one each has a process of its own.
        preload: processes are forked from one that has imported everything, where that is the same.
    """
    return LocalRunner(
        python=spec.python,
        framework=runnable(spec.framework),
        home=home_tag(settings.home.root),
        clock=clock,
        allow_busy=allow_busy,
        keeper=keeper,
        preloads=Preloads(most=most_alive(hardware.usable_memory())) if preload else None,
        caches=settings.home.root / "cache",
    )


def directory_of(settings: Settings, study: Study) -> Callable[[Trial], Path]:
    """Folder of a trial's present attempt."""
    return lambda trial: settings.home.attempt(study.id, study.spec.name, trial.number, trial.attempt)
