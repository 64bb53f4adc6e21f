"""``autotune doctor``: checks this machine, with a command that fixes each finding."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import console
from autotune.cli.commands.space import NodesOption
from autotune.cli.commands.start_options import (
    ConfigOptions,
    EnvOption,
    FrameworkOption,
    GpusOption,
    RayOption,
    RewardOption,
    TaskOption,
)
from autotune.cli.doctor.findings import Finding, blocking, doctor_screen, finding_json, ok, problem
from autotune.cli.doctor.machine_checks import (
    check_compiler,
    check_governor,
    check_load,
    check_machine,
    check_surroundings,
    look_at_gpus,
)
from autotune.cli.doctor.place_checks import check_database, check_disk, check_folders, check_home
from autotune.cli.option_groups import takes
from autotune.cli.options import HomeOption, JsonOption, settings_for
from autotune.domain import RewardSpec, Study
from autotune.errors import MachineError, UsageError
from autotune.machine import hardware, other_load, surroundings
from autotune.machine.nvml import Gpu
from autotune.running.gpu_guard import PatientCall
from autotune.running.launch import let_through
from autotune.settings import Settings

if TYPE_CHECKING:
    from autotune.frameworks import Environment
    from autotune.specification.request import Request


@dataclass(frozen=True)
class DoctorOptions(ConfigOptions):
    """All options of ``autotune doctor``."""

    python: Annotated[
        str, typer.Option(metavar="PATH", help="Interpreter of the training environment. Default: this one.")
    ] = sys.executable
    framework: FrameworkOption = "trl"
    gpu: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Check only --config, for GPUs of this kind; none is needed here."),
    ] = None
    gpus: GpusOption = None
    nodes: NodesOption = 1
    reward: RewardOption = None
    env: EnvOption = None
    task: TaskOption = None
    ray: RayOption = None
    as_json: JsonOption = False
    home: HomeOption = None


@takes(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Checks whether a study can run here, and shows fixes.

    --config shows every fault of the configuration, with its line and the nearest legal values. --config, --reward
    and --task also check that the training interpreter can load the rewards and has the packages that they and the
    configuration need. --gpu checks only the configuration, with the keys of the tested framework version. --ray
    checks only the nodes of a cluster, and shows where they differ.

    \b
    Examples:
      autotune doctor
      autotune doctor --python /my/env/bin/python --config grpo.yaml
      autotune doctor --python /my/swift-env/bin/python --framework swift
      autotune doctor --reward rewards.py:score --json
      autotune doctor --config grpo.yaml --gpu h100 --gpus 8 --nodes 2
      autotune doctor --ray auto --python /my/env/bin/python

    Exit code 5: no study can run here yet; 2: only the configuration has faults; 0: at most warnings.
    """
    from autotune import wiring
    from autotune.cli.doctor.training_checks import CONFIG, check_config, check_trackers
    from autotune.frameworks import framework_named

    python, environment = os.path.expanduser(options.python), framework_named(options.framework).environment
    if options.ray is not None:
        _show_nodes(options.ray, os.path.abspath(python), environment, options.as_json)
        return
    if options.nodes > 1 and options.gpu is None:
        raise UsageError("--nodes goes with --gpu KIND: the nodes that --config is checked for")
    let_through(options.env or ())
    asked = _request(options)
    if options.gpu is not None:
        _show(_on_paper(asked, options.gpu), [], options.as_json)
        return
    reward, task = options.reward or [], options.task
    try:
        wanted = rewards_of(asked, reward, task)
    except UsageError:
        if asked is None or reward or task:
            raise
        wanted = None  # the configuration cannot be read, and the check of it says why
    findings = [*_places(settings_for(options.home)), *_machine(), *_training(python, wanted, environment)]
    findings += _there(options.framework, options.gpus)
    if asked is not None:
        keys = {} if wanted is None else _keys(asked)
        findings += [*check_trackers(python, keys), *check_config(asked, wiring.config_faults)]
    _show(findings, [finding for finding in findings if finding.name != CONFIG], options.as_json)


def _show(findings: Sequence[Finding], machine: Sequence[Finding], as_json: bool) -> None:
    """Prints the findings and returns the exit code; problems in ``machine`` are not due to the configuration."""
    if as_json:
        console.document({"ok": not blocking(findings), "findings": [finding_json(f) for f in findings]})
    else:
        console.show(doctor_screen(findings, on_paper=not machine))
    if blocking(findings):
        raise typer.Exit(MachineError.exit_code if blocking(machine) else UsageError.exit_code)


def _request(options: DoctorOptions) -> Request | None:
    """Returns the same request as ``start``; ``None`` without a configuration. Raises ``UsageError``."""
    if options.config is None:
        return None
    from autotune.cli.commands.start_request import paper_request

    found = os.path.abspath(shutil.which(os.path.expanduser(options.python)) or options.python)
    return paper_request(options, options.framework, gpus=options.gpus, nodes=options.nodes, python=found)


def _on_paper(request: Request | None, kind: str) -> list[Finding]:
    """Returns findings on the configuration alone, for GPUs of this ``kind`` elsewhere. Raises ``UsageError``."""
    from autotune.cli.doctor.training_checks import check_faults
    from autotune.forecast.answer import Machine
    from autotune.forecast.gpus import gpu_of
    from autotune.forecast.question import described
    from autotune.specification.config_faults import faults_of
    from autotune.specification.on_paper import Recorded

    if request is None or request.gpus == 0:
        raise UsageError("--gpu is the kind of --gpus, one or more, to check a file for; name it with --config")
    gpu = gpu_of(kind)
    machine = Machine(gpu.name, gpu.memory, 1 if request.gpus is None else request.gpus, request.nodes)
    there = replace(described(machine, gpu), framework=request.framework)
    return check_faults(request, faults_of(request, Recorded(), there), machine.words())


TrainingNeeds = tuple[tuple[RewardSpec, ...], tuple[str, ...]]
"""(rewards to load, modules that the configuration needs)."""


def rewards_of(request: Request | None, reward: Sequence[str], task: str | None) -> TrainingNeeds | None:
    """Returns the rewards and modules that the options name; ``None`` without such an option. Raises ``UsageError`` for
    a missing file, or a word that its option does not take."""
    from autotune.cli.doctor.training_checks import OPTIONAL_KEYS
    from autotune.specification.request import PACKAGES
    from autotune.specification.user_input import rewards_configured, rewards_named, task_named

    if request is None and not reward and task is None:
        return None
    folder, keys = Path.cwd(), {} if request is None else _keys(request)
    named = rewards_named(reward, folder)
    if task is not None:
        named += (RewardSpec("reasoning_gym", task_named(task)),)
    own = keys.get("reward_funcs")
    if not named and own and request is not None:
        words = [own] if isinstance(own, str) else own
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UsageError(f"{request.config_name}: reward_funcs: expected a list of names")
        named = rewards_configured(words, folder, request.framework, request.checkout)
    needed = {**PACKAGES, **OPTIONAL_KEYS}
    return named, tuple(dict.fromkeys(needed[key] for key in needed if _is_on(keys.get(key))))


def _is_on(value: Any) -> bool:
    """Tells whether a key's value is set and not false or none; a value from a script is a list of words."""
    words = value if isinstance(value, list) else [value]
    return bool(value) and [str(word).lower() for word in words] not in (["false"], ["none"])


def _keys(request: Request) -> Mapping[str, Any]:
    from autotune.frameworks import Source, framework_named

    return framework_named(request.framework).read_keys(Source(request.config or "", request.config_name), {})


def _places(settings: Settings) -> list[Finding]:
    from autotune.store.models import VERSION

    return [
        ok("tuner", f"Python {platform.python_version()}, {platform.platform()}"),
        check_home(settings),
        check_disk(settings.home.root),
        check_database(settings, lambda: len(_studies(settings)), str(VERSION)),
    ]


def _studies(settings: Settings) -> Sequence[Study]:
    from autotune.wiring import open_to_read

    with closing(open_to_read(settings)) as store:
        return store.studies()


def _machine() -> list[Finding]:
    ours = hardware.driver_process_ids_are_ours()
    return [
        check_machine(hardware.usable_cores(), hardware.usable_memory(), other_load.available_memory()),
        *check_governor(other_load.governors()),
        check_load(other_load.sample_load(time.sleep)),
        *check_compiler(compiler=os.environ.get("CXX")),
        *check_surroundings(surroundings.look(), len(_gpus())),
        *look_at_gpus(
            lambda: hardware.visible_gpus({}),
            _driver,
            os.environ.get("CUDA_VISIBLE_DEVICES"),
            other_load.process_name if ours else lambda _: "",
            hardware.unfit_gpus,
        ),
    ]


def _training(python: str, needs: TrainingNeeds | None, environment: Environment) -> list[Finding]:
    from autotune import wiring
    from autotune.cli.doctor.training_checks import check_rewards, check_training
    from search_spaces.frameworks import facts_of

    asked = () if environment.judged_by_probe else (environment,)
    gpus = [gpu.compute_capability for gpu in _gpus()]
    found = check_training(python, lambda program: wiring.probe(program, *asked), gpus=gpus, environment=environment)
    if needs is None or blocking(found):
        return found
    rewards, packages = needs
    named = {f"{r.name} ({r.kind})": facts_of(r.kind).rewards_by_plugin for r in rewards}
    names = [*(name for name, of_framework in named.items() if not of_framework), *packages]
    untried = [name for name, of_framework in named.items() if of_framework]
    program = os.path.abspath(shutil.which(python) or python)
    return [*found, check_rewards(names, wiring.check_rewards(program, rewards, packages, *asked), untried)]


def _there(framework: str, gpus: int | None) -> list[Finding]:
    """Returns findings specific to ``framework``, on the working directory and on this machine."""
    from autotune.frameworks import framework_named

    named = framework_named(framework)
    folders = check_folders(named.environment.folders, Path.cwd())
    notes = named.on_machine(hardware.usable_cores(), gpus or len(_gpus()))
    return [*folders, *(ok("trials", text) for text in notes)]


def _show_nodes(address: str, python: str, environment: Environment, as_json: bool) -> None:
    """Checks all nodes of a cluster in parallel, and prints the findings."""
    from autotune import wiring
    from autotune.cli.doctor.cluster_checks import NodeLook, look, side_by_side

    answers, ahead = wiring.on_every_node(address, look, python, environment)
    looks = {name: answer for name, answer in answers.items() if isinstance(answer, NodeLook)}
    silent = [problem(f"node {name}", str(answer)) for name, answer in answers.items() if name not in looks]
    found = [*side_by_side(looks, ahead), *silent]
    _show(found, found, as_json)


@PatientCall
def _driver() -> Sequence[Gpu]:
    return hardware.visible_gpus()


def _gpus() -> Sequence[Gpu]:
    """Returns the GPUs; empty if they cannot be read."""
    try:
        return _driver()
    except MachineError:
        return ()
