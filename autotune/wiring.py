"""Chooses the implementations of the ports, and assembles a study from them. No other module does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from threadpoolctl import threadpool_limits

from autotune.domain import Budget, Fingerprint, Study, StudySpec, Trial
from autotune.errors import NotFoundError
from autotune.frameworks import framework_named
from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from autotune.machine.lanes import Lane, lanes
from autotune.ports import Clock, Observer, Proposer, StopToken, Store
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.proposer import make_proposer
from autotune.running.cluster.gathering import Spread, gather, on_every_node, take
from autotune.running.job import Graces
from autotune.running.local import LocalRunner, end_study, home_tag
from autotune.running.preloaded import Preloads, most_alive
from autotune.running.warm_pool import WarmWorkerPool, restores_memory
from autotune.settings import Settings
from autotune.specification import prepare as specification
from autotune.specification import prior_knowledge
from autotune.specification.config_faults import Faults, faults_of
from autotune.specification.interpreter import Interpreter, check_rewards, probe
from autotune.specification.prepare import NO_LIMITS, Prepared, present_fingerprint
from autotune.specification.request import Request
from autotune.specification.resolve import Talk
from autotune.store import READERS_PATIENCE, OutageLimits, check_place, open_store
from autotune.study.control import Control
from autotune.study.crews import SideBySide
from autotune.study.identity import check_machine, find_or_create
from autotune.study.loop import StudyLoop
from search_spaces.configuration import Resources
from search_spaces.space import SearchSpace

__all__ = ["check_machine", "check_rewards", "find_or_create", "on_every_node", "present_fingerprint", "probe", "take"]
__all__ += ["Prepared", "Spread"]
"""Names re-exported for the commands."""


def open_store_for(settings: Settings, stop: StopToken | None = None, *, create: bool = True) -> Store:
    """Opens the database of the settings; creates the home folder and, with ``create``, the database.

    With ``stop``, as in a tuner, waits for an absent server or a file that another process has locked, until ``stop``
    has level 2; without ``stop``, waits for a server only a few seconds.
    """
    settings.home.prepare()
    patience = OutageLimits() if stop is not None or "://" not in settings.database else READERS_PATIENCE
    return open_store(settings.database, create=create, stop=stop, patience=patience)


def open_to_read(settings: Settings) -> Store:
    """Opens the settings' database, possibly on a read-only mount; creates nothing. Raises ``NoDatabaseError``."""
    return open_store(settings.database, create=False, patience=READERS_PATIENCE)


def check_store(settings: Settings) -> None:
    """Checks home folder and database file before a long preparation; creates neither. Raises ``AutotuneError``."""
    if settings.home.root.exists():
        settings.home.prepare()
    if "://" in settings.database:
        return
    file = Path(os.path.expanduser(settings.database)).absolute()
    check_place(file)
    if file.is_file():
        open_store_for(settings).close()


def prepare(
    request: Request, settings: Settings, talk: Talk, bundled: str = "", limits: Budget = NO_LIMITS
) -> Prepared:
    """Prepares a study that can be run; see ``specification.prepare``."""
    return specification.prepare(request, settings, talk, lambda name: stored(settings, name), bundled, limits)


def config_faults(request: Request, machine: Resources) -> Faults:
    """Finds the faults of the configuration of ``request``; caches nothing. See ``config_faults.faults_of``."""
    with tempfile.TemporaryDirectory(prefix="autotune-config-") as folder:
        return faults_of(request, Interpreter(request.python, Path(folder)), machine, weights=True)


def stored(settings: Settings, name: str) -> tuple[StudySpec, bool] | None:
    """Returns a stored study's specification, and whether its first trial has ended; ``None`` without such a study."""
    if "://" not in settings.database and not Path(settings.database).is_file():
        return None
    with closing(open_store_for(settings)) as store, suppress(NotFoundError):
        study = store.study(name)
        return study.spec, any(t.state.is_finished for t in store.trials(study.id, until=1))
    return None


def begun(
    study: Study, store: Store, settings: Settings, fingerprint: Fingerprint, talk: Talk, *, history: bool = True
) -> Study:
    """Stores prior knowledge before the first trial, as ``prior_knowledge.begun``."""
    speed = prior_knowledge.measuring(Interpreter(study.spec.python, settings.home.root), talk)
    return prior_knowledge.begun(study, store, speed, fingerprint.hardware, talk, history=history)


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
    grace_s: float | None = None,
    spread: Spread | None = None,
    prepared: Prepared | None = None,
    command: str = "",
) -> StudyLoop:
    """Builds the loop of a stored study, which also handles requests through the database.

    ``warm`` forks trials from a process with all imports done and, on a GPU, lets one process run several search
    trials. ``spread`` runs trials on other machines; without it they run on this machine. With ``prepared`` the
    workload may be chosen anew. ``command`` began this run.
    """
    clock = SystemClock()
    control = Control(store, study.id, stop, clock)

    def runner(place: int | None, lane: Lane | None = None) -> LocalRunner:
        return runner_for(
            study.spec, settings, clock, allow_busy=allow_busy, lane=lane, at_once=budget.at_once, grace_s=grace_s,
            preload=settings.home.root / "cache" / f"refused-imports-{fingerprint.digest}.json" if warm else None,
            keeper=keeper_for(study, settings, clock, place) if warm else None,
        )  # fmt: skip

    crew = _crew(study.spec, settings, budget, control, runner, spread)
    return StudyLoop(
        study=study,
        budget=budget,
        store=store,
        proposer=proposer_for(study.spec, prior_knowledge.prior_data(study, store)),
        runner=None if crew is not None else runner(None),
        crew=crew,
        clock=clock,
        observer=observer,
        stop=control,
        directory_of=directory_of(settings, study),
        fingerprint=fingerprint.digest,
        requests=control,
        prepared=prepared,
        command=command,
    )


def _crew(
    spec: StudySpec,
    settings: Settings,
    budget: Budget,
    stop: StopToken,
    runner: Callable[[int | None, Lane | None], LocalRunner],
    spread: Spread | None,
) -> SideBySide | None:
    """Returns the crew for parallel trials; ``None`` if trials run one after the other on this machine."""
    if spread is not None:
        each = gather(
            spread, lambda place: runner(place.share.place, None), settings.home.root, spec.memory_limit, SystemClock()
        )
        return SideBySide([(one.name, one.runner) for one in each], stop, [one.node for one in each])
    places = lanes_of(spec, budget.at_once)
    return SideBySide([(lane.name, runner(lane.index, lane)) for lane in places], stop) if places else None


def lanes_of(spec: StudySpec, at_once: int) -> tuple[Lane, ...]:
    """Returns the shares of this machine for parallel trials; empty if trials run one after the other.

    Raises:
        UsageError: the machine is too small for ``at_once`` trials.
    """
    if at_once == 1:
        return ()
    cpus = hardware.by_core(os.sched_getaffinity(0))[: max(1, hardware.usable_cores())]
    gpus = hardware.visible_gpus() if spec.resources.gpus else ()
    numbers, near = [gpu.index for gpu in gpus], [gpu.cpus for gpu in gpus]
    memory, threads = hardware.usable_memory(), hardware.threads_of_core()
    return lanes(at_once, spec.resources.gpus, cpus, memory, spec.memory_limit, numbers, near, threads)


def keeper_for(study: Study, settings: Settings, clock: Clock, place: int | None) -> WarmWorkerPool | None:
    """Returns the warm-worker pool (processes of several trials each); ``None`` if the device does not allow it."""
    if not restores_memory(study.spec.resources.device):
        return None
    root = settings.home.workers(study.id, study.spec.name)
    return WarmWorkerPool(root if place is None else root / f"place-{place}", clock)


def use_one_thread() -> None:
    """Makes numpy's linear algebra run only on the calling thread, from now on.

    The matrices of a proposal are small. More threads would wait for each other in busy loops, whose CPU time disturbs
    the trial that is being measured and exceeds that of the products.
    """
    threadpool_limits(limits=1, user_api="blas")


def proposer_for(spec: StudySpec, known: PriorData | None = None) -> Proposer:
    """Builds a study's proposer; ``known`` is its prior data. Raises ``UsageError`` for an unknown sampler."""
    space = SearchSpace.from_json(spec.space)
    use_one_thread()
    task = Task.of(spec)
    return make_proposer(space, spec.baseline, spec.resources, spec.sampler, spec.seed, task=task, prior_data=known)


def runner_for(
    spec: StudySpec,
    settings: Settings,
    clock: Clock,
    *,
    allow_busy: bool = False,
    keeper: WarmWorkerPool | None = None,
    preload: Path | None = None,
    lane: Lane | None = None,
    at_once: int = 1,
    grace_s: float | None = None,
) -> LocalRunner:
    """Builds the runner of trials on this machine.

    Args:
        keeper: pool of processes that run several trials; ``None``: each trial has its own process.
        preload: file of refused imports (``Preloads``) of processes with all imports done, from which trials are
            forked; ``None``: they are not.
        lane: part of the machine for the trials; ``None``: all of it.
        at_once: number of runners.
        grace_s: seconds after a stop within which all processes end; ``None``: the default.
    """
    memory = hardware.usable_memory() or 0
    return LocalRunner(
        python=spec.python, framework=framework_named(spec.framework), home=home_tag(settings.home.root), clock=clock,
        allow_busy=allow_busy, graces=Graces() if grace_s is None else Graces().within(grace_s), keeper=keeper,
        preloads=None if preload is None else Preloads(most=most_alive(memory // at_once), refusals=preload),
        lane=lane, memory_limit=None if lane is None else lane.memory, caches=settings.home.root / "cache",
    )  # fmt: skip


def end_processes(settings: Settings, study_id: int) -> None:
    """Kills the processes of a study at once, without a notice to observers."""
    end_study(home_tag(settings.home.root), study_id, SystemClock())


def directory_of(settings: Settings, study: Study) -> Callable[[Trial], Path]:
    """Returns a function from a trial to the folder of its present attempt."""
    return lambda trial: settings.home.attempt(study.id, study.spec.name, trial.number, trial.attempt)
