"""The training interpreter: whether it starts, what it has, whether that fits, and whether the rewards load."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from autotune.cli.findings import Finding, Verdict
from autotune.cli.optional_checks import check_optional
from autotune.errors import AutotuneError
from trainer.child.contract import Result

REQUIRED = ("torch", "trl", "transformers", "accelerate", "datasets")
PACKAGES = "torch 'trl>=1.16,<1.17' transformers accelerate datasets"
NEW_ENVIRONMENT = f"python3 -m venv train-env && train-env/bin/pip install {PACKAGES}"

DISTRIBUTION = "grpo-autotune"
EXTRA = "trl"
"""The extra of our own distribution that names the stack this version was tested with."""

Probe = Callable[[str], Mapping[str, Any]]
"""Interpreter -> what it has; raises ``AutotuneError`` if it cannot be asked."""


def check_training(python: str, probe: Probe, *, gpus: bool = False) -> list[Finding]:
    """The interpreter starts, has what a trial imports, in versions that were tested; ``gpus``: one is to be used."""
    program = shutil.which(os.path.expanduser(python))
    if program is None:
        return [Finding("training", Verdict.PROBLEM, f"{python} is no program that can be run", NEW_ENVIRONMENT)]
    program = os.path.abspath(program)
    pip = f"{shlex.quote(program)} -m pip install"
    try:
        told = probe(program)
    except AutotuneError as error:
        return [Finding("training", Verdict.PROBLEM, str(error), f"{pip} {PACKAGES}")]
    packages: Mapping[str, str] = told.get("packages") or {}
    missing = [name for name in REQUIRED if not packages.get(name)]
    if missing:
        text = f"{program} lacks {', '.join(missing)}"
        return [Finding("training", Verdict.PROBLEM, text, f"{pip} {PACKAGES}")]
    versions = ", ".join(f"{name} {packages[name]}" for name in REQUIRED)
    text = f"{program}: Python {told.get('python', 'unknown')}, {versions}"
    if told.get("trl_supported") is False:
        text += "; the meter was not checked with this trl"
        return [Finding("training", Verdict.WARNING, text, f"{pip} 'trl>=1.16,<1.17'")]
    if gpus and packages["torch"].endswith("+cpu"):
        text += "; this torch was built for the CPU and cannot use the GPU"
        return [Finding("training", Verdict.PROBLEM, text, f"{pip} --force-reinstall torch")]
    return [
        Finding("training", Verdict.OK, text),
        *check_versions(packages, tested(), pip),
        *check_optional(packages, pip, gpus=gpus),
    ]


def check_versions(packages: Mapping[str, str], window: Sequence[Requirement], pip: str) -> list[Finding]:
    """One warning for what lies outside the tested versions; nothing if all lie inside."""
    outside = [r for r in window if not _inside(r, packages.get(r.name.replace("-", "_")))]
    if not outside:
        return []
    words = ", ".join(f"{r.name} {packages[r.name.replace('-', '_')]} (tested: {r.specifier})" for r in outside)
    wanted = " ".join(shlex.quote(f"{r.name}{r.specifier}") for r in outside)
    return [Finding("versions", Verdict.WARNING, f"not tested with {words}", f"{pip} {wanted}")]


def tested() -> tuple[Requirement, ...]:
    """The training stack this version names; empty where it is not installed."""
    try:
        texts = metadata.requires(DISTRIBUTION) or []
        found = [Requirement(text) for text in texts]
    except (metadata.PackageNotFoundError, InvalidRequirement):
        return ()
    return tuple(r for r in found if r.marker is not None and f'extra == "{EXTRA}"' in str(r.marker))


def _inside(requirement: Requirement, version: str | None) -> bool:
    """What is not installed is not outside; a version nobody can read is."""
    if not version:
        return True
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def check_rewards(names: Sequence[str], result: Result) -> Finding:
    """``result`` of loading the rewards ``names`` in the training interpreter."""
    what = ", ".join(names) or "no reward is named"
    if result.ok:
        return Finding("rewards", Verdict.OK, f"{what}: found")
    sentence, _, command = result.message.partition("; install with: ")
    return Finding("rewards", Verdict.PROBLEM, sentence or result.detail or f"{what}: cannot be loaded", command)
