"""Packages that each framework's trials import, in the versions that are known to work."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Needed:
    """A package without which no trial starts."""

    name: str
    """Module name, as the child's probe lists it."""
    versions: str = ""
    """Supported versions, as pip writes them; empty: any."""
    distribution: str = ""
    """Name of the package for pip, if it differs from the module's."""

    @property
    def requirement(self) -> str:
        """Requirement for pip, not quoted."""
        return f"{self.distribution or self.name}{self.versions}"

    def takes(self, version: str) -> bool:
        """Tells whether a version is supported. A version that cannot be parsed is not, unless any is."""
        return not self.versions or within(self.versions, version)


@dataclass(frozen=True)
class Wished:
    """A package that only some knobs need."""

    name: str
    known: SpecifierSet
    """Versions that our patches of the package were written for."""
    gives: str
    """Feature that the package provides."""
    without: str = ""
    """Feature that a machine with a GPU lacks without the package; empty if no warning is needed."""


@dataclass(frozen=True)
class Environment:
    """Requirements on the interpreter of a framework's trials."""

    needed: tuple[Needed, ...]
    """Packages without which no trial starts, in display order."""
    wished: tuple[Wished, ...] = ()
    extra: str = ""
    """Extra of our own distribution that installs the tested versions; empty if there is none."""
    python: str = ""
    """Supported versions of Python, as pip writes them; empty: any that starts a trial."""
    folders: tuple[str, ...] = ()
    """Top-level folders with common names in the framework's wheels, each with an ``__init__.py``: Python prefers them
    to folders of the user's that have none."""
    judged_by_probe: bool = False
    """True if the child's probe refuses unsupported versions itself; otherwise ``problem`` does."""

    @property
    def pip(self) -> str:
        """Arguments of ``pip install``, quoted for a shell."""
        return _quoted(self.needed)

    @property
    def modules(self) -> Mapping[str, str]:
        """Module -> distribution that the child's probe looks for; empty if the probe judges versions itself."""
        return {} if self.judged_by_probe else {each.name: each.distribution or each.name for each in self.needed}

    def lacking(self, packages: Mapping[str, str]) -> tuple[Needed, ...]:
        """Lists the required packages that an interpreter lacks; ``packages``: name -> installed version."""
        return tuple(each for each in self.needed if not packages.get(each.name))

    def outside(self, packages: Mapping[str, str]) -> tuple[Needed, ...]:
        """Lists the required packages whose installed version is not supported."""
        there = [each for each in self.needed if packages.get(each.name)]
        return tuple(each for each in there if not each.takes(packages[each.name]))

    def takes_python(self, version: str) -> bool:
        """Tells whether the framework has a release for this version of Python."""
        return not self.python or within(self.python, version)

    def problem(self, python: str, version: str, packages: Mapping[str, str]) -> str:
        """Explains in one sentence why ``python`` cannot run a trial, with the command that installs the missing
        packages; empty if it can. ``packages``: name -> installed version."""
        if self.judged_by_probe:
            return ""
        if not self.takes_python(version):
            return f"{python} is Python {version}; Python {self.python} is needed"
        lacking, outside = self.lacking(packages), self.outside(packages)
        parts = [f"lacks {', '.join(each.name for each in lacking)}"] if lacking else []
        if outside:
            parts += ["has " + ", ".join(f"{each.name} {packages[each.name]}" for each in outside)]
        if not parts:
            return ""
        return f"{python} {' and '.join(parts)}; install with: {python} -m pip install {_quoted((*lacking, *outside))}"


def within(versions: str, version: str) -> bool:
    """Tells whether ``version`` lies within ``versions``, pre-releases included; False if either cannot be parsed."""
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False


def _quoted(needed: Sequence[Needed]) -> str:
    return " ".join(shlex.quote(each.requirement) for each in needed)


def _vllm(versions: str) -> Wished:
    return Wished(
        "vllm",
        SpecifierSet(versions),
        "completions by vLLM",
        "without vllm completions can be generated by transformers only",
    )


TRL = Environment(
    needed=(
        Needed("torch"),
        Needed("trl", ">=1.16,<1.17"),
        Needed("transformers"),
        Needed("accelerate"),
        Needed("datasets"),
    ),
    wished=(
        _vllm(">=0.26,<0.32"),
        Wished("deepspeed", SpecifierSet(">=0.19,<0.20"), "ZeRO"),
        Wished("torchao", SpecifierSet(">=0.18,<0.19"), "FP8 training"),
        Wished("bitsandbytes", SpecifierSet(">=0.45.1"), "8-bit optimizers, QLoRA"),
    ),
    extra="trl",
    judged_by_probe=True,
)

OPEN_R1 = Environment(
    needed=(
        Needed("torch"),
        Needed("trl", "==0.18.0"),
        Needed("transformers", "==4.52.3"),
        Needed("accelerate", "==1.4.0"),
        Needed("datasets"),
        Needed("math_verify", distribution="math-verify"),
        Needed("latex2sympy2_extended"),
        Needed("async_lru", distribution="async-lru"),
        Needed("aiofiles"),
        Needed("aiohttp"),
    ),
    wished=(
        _vllm("==0.8.5.post1"),
        Wished("deepspeed", SpecifierSet("==0.16.8"), "ZeRO"),
    ),
    python=">=3.10.9",
)
"""Versions that Open-R1 pins in its setup.py, and the packages its rewards import in any case. Open-R1 itself is a
checkout that the user names."""

MS_SWIFT = Environment(
    needed=(
        Needed("torch"),
        Needed("swift", ">=4.6,<4.7", "ms-swift"),
        Needed("trl", ">=0.26,<1"),
        Needed("transformers", ">=4.33,<5.20"),
        Needed("accelerate"),
        Needed("datasets", ">=4.0,<4.8.5"),
        Needed("peft", ">=0.11,<0.21"),
        Needed("msgspec"),
    ),
    wished=(_vllm(">=0.10.2,<0.32"), Wished("deepspeed", SpecifierSet(), "ZeRO")),
    python=">=3.10",
)
"""Versions from ms-swift's metadata; trl from its ``rlhf_trainers/arguments.py``; msgspec is an undeclared import. A
trial needs Python 3.10."""

VERL = Environment(
    needed=(
        Needed("torch"),
        Needed("verl", ">=0.9.1,<0.10"),
        Needed("transformers", ">=5.5.3,<5.11,!=5.6.0"),
        Needed("accelerate"),
        Needed("datasets"),
        Needed("ray", ">=2.41"),
        Needed("tensordict", ">=0.8,<=0.10,!=0.9.0"),
        Needed("hydra", distribution="hydra-core"),
        Needed("transfer_queue", distribution="TransferQueue"),
        Needed("vllm", "==0.24.0"),
    ),
    wished=(Wished("flash_attn", SpecifierSet("==2.8.3"), "flash attention"),),
    python=">=3.10,<3.13",
    folders=("recipe", "scripts", "tests"),
)
"""Versions from verl's metadata with its extra ``vllm``: TransferQueue passes batches on, and vLLM generates."""

ENVIRONMENTS: Mapping[str, Environment] = {"trl": TRL, "open_r1": OPEN_R1, "ms_swift": MS_SWIFT, "verl": VERL}
"""Name in the catalogue -> environment, also for a framework whose trials cannot run yet."""
