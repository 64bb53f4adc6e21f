"""The one place that chooses concrete classes and puts a study together."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune import hardware, preparation
from autotune.clock import SystemClock
from autotune.domain import Budget, Configuration, Fingerprint, Resources, Study, StudySpec, Trial
from autotune.errors import AutotuneError, MachineError, NotFoundError, StudyDiffersError, UsageError
from autotune.frameworks import framework_named
from autotune.ports import Clock, Observer, Proposer, StopToken, Store, TrialRunner
from autotune.preparation import Request
from autotune.proposals import make_proposer
from autotune.running.local import LocalRunner, home_tag
from autotune.running.tool import run_tool
from autotune.settings import Settings
from autotune.store import open_store
from autotune.study import StudyLoop
from search_spaces.configuration import ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import (
    ContractError,
    FailureReason,
    Result,
    RunPaths,
    dumps,
    encode,
    read_result,
)
from trainer.frameworks import trl

PROBE_TIMEOUT_S = 180.0
PREPARE_TIMEOUT_S = 600.0

Talk = Callable[[str], None]


def open_store_for(settings: Settings) -> Store:
    """The database of the settings; its home is created if need be."""
    settings.home.prepare()
    return open_store(settings.database)


def probe(python: str) -> Mapping[str, Any]:
    """What a training interpreter has (``Result.data`` of the child's ``probe``).

    Raises:
        MachineError: it cannot be started, or lacks what a trial needs.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-probe-") as folder:
        result = run_tool(python, "probe", Path(folder), {"devices": False}, PROBE_TIMEOUT_S, clock=SystemClock())
    if not result.ok:
        raise MachineError(f"{python}: {result.message or 'cannot run a trial'}")
    return result.data


@dataclass(frozen=True)
class Prepared:
    """A study that can be run, and what to say about it first."""

    spec: StudySpec
    fingerprint: Fingerprint
    legal: int
    same_learning: int


def prepare(request: Request, settings: Settings, talk: Talk) -> Prepared:
    """Probe the interpreter, write the prompts, and judge space and baseline; nothing is stored yet.

    Raises:
        UsageError: model, task, space or baseline cannot be used.
        MachineError: this machine or interpreter lacks something.
    """
    settings.home.prepare()
    preparation.model_digest(request.model)
    machine = usable_resources(talk)
    framework_named(request.framework)
    found = _asked(request, settings, "probe", {"devices": False, "reward": encode(preparation.reward_of(request))})
    written = _prepared_prompts(request, settings, found, talk)
    facts = ModelFacts(**{k: v for k, v in written.data["model"].items() if k in ModelFacts.__dataclass_fields__})
    resources = preparation.resources_for(machine, request, facts, _software(found.data))
    space = preparation.load_space(request, resources)
    baseline = preparation.baseline_of(request, space, resources)
    preparation.check_baseline(baseline, resources)
    _check_supported(space, baseline)
    legal = space.candidates(baseline, resources, same_learning=False)
    if not legal:
        raise UsageError(_nothing_legal(space, baseline, resources))
    workload = preparation.workload_of(request, Path(written.data["prompts"]), written.data["sha256"])
    spec = preparation.specification(request, workload, space, baseline, resources)
    return Prepared(
        spec=spec,
        fingerprint=preparation.fingerprint_of(spec, hardware.describe()),
        legal=len(legal),
        same_learning=len(space.candidates(baseline, resources, same_learning=True)),
    )


def usable_resources(talk: Talk) -> Resources:
    """This machine; of several GPUs the first only, until a trial can be spread over them."""
    gpus = hardware.visible_gpus()
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0].uuid
        talk(f"{len(gpus)} GPUs are visible; trials use one, {gpus[0].name} ({gpus[0].uuid})")
    return hardware.resources(gpus=gpus[:1])


def find_or_create(store: Store, spec: StudySpec, now: float, *, fork: bool) -> tuple[Study, bool]:
    """The study of this specification, and whether it existed.

    Raises:
        StudyDiffersError: the name belongs to another specification; the message shows the difference.
    """
    try:
        there = store.study(spec.name)
    except NotFoundError:
        return store.create_study(spec, now), False
    if there.spec.digest == spec.digest:
        return there, True
    if fork:
        return _beside(store, spec, now)
    changed = "; ".join(preparation.differences(there.spec, spec)[:8])
    raise StudyDiffersError(
        f"study {spec.name!r} exists with another specification ({changed}); "
        "--new starts a study beside it, --name gives it another name"
    )


def check_machine(store: Store, study: Study, fingerprint: Fingerprint) -> None:
    """Refuses to add to trials that were measured on another machine.

    Raises:
        StudyDiffersError: naming what differs.
    """
    before = store.fingerprint(study.id)
    if before is None or before.digest == fingerprint.digest:
        return
    changed = "; ".join(preparation.differing(encode(before), encode(fingerprint))[:8])
    raise StudyDiffersError(
        f"study {study.spec.name!r} was measured on another machine or stack ({changed}); "
        "figures of the two cannot be compared: --name starts another study"
    )


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
) -> StudyLoop:
    """The loop of a stored study with the real parts."""
    clock = SystemClock()
    return StudyLoop(
        study=study,
        budget=budget,
        store=store,
        proposer=proposer_for(study.spec),
        runner=runner_for(study.spec, settings, clock, allow_busy=allow_busy),
        clock=clock,
        observer=observer,
        stop=stop,
        directory_of=directory_of(settings, study),
        fingerprint=fingerprint.digest,
    )


def proposer_for(spec: StudySpec) -> Proposer:
    """Raises ``UsageError`` for an unknown sampler."""
    space = SearchSpace.from_json(spec.space)
    return make_proposer(space, spec.baseline, spec.resources, spec.sampler, spec.seed)


def runner_for(spec: StudySpec, settings: Settings, clock: Clock, *, allow_busy: bool = False) -> TrialRunner:
    """Trials on this machine."""
    return LocalRunner(
        python=spec.python,
        framework=framework_named(spec.framework),
        home=home_tag(settings.home.root),
        clock=clock,
        allow_busy=allow_busy,
    )


def directory_of(settings: Settings, study: Study) -> Callable[[Trial], Path]:
    """Folder of a trial's present attempt."""
    return lambda trial: settings.home.attempt(study.id, study.spec.name, trial.number, trial.attempt)


def _asked(
    request: Request, settings: Settings, command: str, payload: Mapping[str, Any], talk: Talk | None = None
) -> Result:
    """A child command's result, kept by what was asked, so that the same start again begins at once."""
    if not os.access(request.python, os.X_OK):
        raise MachineError(f"{request.python} is not an interpreter that can be run; name one with --python")
    directory = settings.home.root / "prepared" / _key(command, request.python, payload)
    kept = _kept(directory)
    if kept is not None:
        return kept
    if talk is not None:
        talk(f"writing {request.prompts} prompts of {request.task} and trying the reward")
    timeout = PROBE_TIMEOUT_S if command == "probe" else PREPARE_TIMEOUT_S
    home = home_tag(settings.home.root)
    result = run_tool(request.python, command, directory, payload, timeout, clock=SystemClock(), home=home)
    if not result.ok:
        (directory / "result.json").unlink(missing_ok=True)
        raise _problem(command, request, result)
    return result


def _kept(directory: Path) -> Result | None:
    try:
        result = read_result(RunPaths(directory).result)
    except (OSError, ContractError):
        return None
    prompts = result.data.get("prompts")
    return result if result.ok and (prompts is None or Path(prompts).is_file()) else None


def _key(command: str, python: str, payload: Mapping[str, Any]) -> str:
    """Changes when the interpreter's packages do: installing touches its site-packages folder."""
    stamps = sorted(f"{p}:{p.stat().st_mtime_ns}" for p in Path(python).parent.parent.glob("lib/python*/site-packages"))
    text = "\n".join((command, python, dumps(payload), *stamps))
    return f"{command}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _problem(command: str, request: Request, result: Result) -> AutotuneError:
    bad_input = (FailureReason.ILLEGAL, FailureReason.REWARD_ERROR)
    if command == "prepare" and result.reason in bad_input:
        return UsageError(result.message)
    return MachineError(f"{request.python}: {result.message or result.detail or 'failed'}")


def _prepared_prompts(request: Request, settings: Settings, found: Result, talk: Talk) -> Result:
    payload = {
        "model": str(request.model),
        "max_prompt_length": request.max_prompt_length,
        "reward": encode(preparation.reward_of(request)),
        "task": {
            "name": request.task,
            "size": request.prompts,
            "seed": request.seed,
            "options": dict(request.task_options),
        },
        # Not read by the child: another model in the same folder, or another stack, is another preparation.
        "model_sha256": preparation.model_digest(request.model),
        "packages": found.data.get("packages", {}),
    }
    return _asked(request, settings, "prepare", payload, talk)


def _software(data: Mapping[str, Any]) -> dict[str, str]:
    return {"python": str(data.get("python", "")), **{k: str(v) for k, v in data.get("packages", {}).items()}}


def _check_supported(space: SearchSpace, baseline: Configuration) -> None:
    wanted = Configuration({**baseline, **{name: values[0] for name, values in space.values.items()}})
    missing = trl.unsupported(wanted)
    if missing:
        raise UsageError(
            f"TRL trials cannot set {', '.join(missing)} yet; take the knob out of the space "
            f"(those that act: {', '.join(sorted(trl.SUPPORTED))})"
        )


def _nothing_legal(space: SearchSpace, baseline: Configuration, resources: Resources) -> str:
    told = space.explain(baseline, resources)
    worst = max(told.removed, key=lambda rule: told.removed[rule], default="")
    return f"no combination of the space is legal here; rule {worst} removes most ({told.removed.get(worst, 0)})"


def _beside(store: Store, spec: StudySpec, now: float) -> tuple[Study, bool]:
    """The study of this specification under ``name-2``, ``name-3`` ..., or a new one under the first free."""
    there = {study.spec.name: study for study in store.studies()}
    number = 2
    while (other := there.get(f"{spec.name}-{number}")) is not None:
        if other.spec.digest == spec.digest:
            return other, True
        number += 1
    return store.create_study(replace(spec, name=f"{spec.name}-{number}"), now), False
