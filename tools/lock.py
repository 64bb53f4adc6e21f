"""Make the lock files, or check that they still resolve: ``python -m tools.lock [--check | --upgrade]``.

A check resolves every lock again, for the platform it is for, with nothing downloaded but metadata,
starting from the versions it pins; it fails if a pin is gone, contradicts another, or its source changed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.report import SetupError, say

ROOT = Path(__file__).resolve().parent.parent
LINUX = ("--python-platform", "x86_64-manylinux_2_31")
"""Ubuntu 20.04 and newer; a dependency of vLLM (llguidance) has no wheel for anything older."""
BUILT_HERE = ("cellpylib", "zss")
"""Have no wheels, but are pure Python. Nothing else may need building: the machine may have no compiler."""


@dataclass(frozen=True)
class Lock:
    """A lock file: its sources and options."""

    name: str
    sources: tuple[str, ...]
    options: tuple[str, ...]
    header: str


def wheels_only(*built: str) -> tuple[str, ...]:
    """uv's options for "wheels, except for these"."""
    return ("--only-binary", ":all:", *(word for name in built for word in ("--no-binary", name)))


LOCKS = (
    Lock(
        "requirements/dev.txt",
        ("pyproject.toml",),
        ("--extra", "dev", "--universal", "--generate-hashes", *wheels_only()),
        "The tool and what develops it, for Python 3.11 and newer.",
    ),
    Lock(
        "requirements/train-cpu.txt",
        ("requirements/train-cpu.in",),
        (
            *("--excludes", "requirements/train-cpu.exclude", "--override", "requirements/train-cpu.override"),
            *LINUX,
            *wheels_only(*BUILT_HERE, "deepspeed"),
        ),
        "The training stack without a GPU. No hashes: torch's wheel differs from machine to machine.",
    ),
    Lock(
        "requirements/train-gpu.txt",
        ("requirements/train-gpu.in",),
        ("--excludes", "requirements/train-gpu.exclude", *LINUX, *wheels_only(*BUILT_HERE, "deepspeed")),
        "The training stack with an NVIDIA GPU: CUDA 13, driver 580 or newer.",
    ),
    Lock(
        "requirements/open-r1.txt",
        ("requirements/open-r1.in",),
        ("--excludes", "requirements/train-cpu.exclude", *LINUX, *wheels_only()),
        "Open-R1's versions without a GPU. No hashes: torch's wheel differs from machine to machine.",
    ),
    Lock(
        "requirements/search-peers.txt",
        ("pyproject.toml", "requirements/search-peers.in"),
        ("--excludes", "requirements/train-cpu.exclude", *LINUX, *wheels_only("smac", "pynisher")),
        "The tool and the peers its search is compared with. No hashes: torch's wheel differs from machine to machine.",
    ),
    Lock(
        "requirements/ms-swift.txt",
        ("requirements/ms-swift.in",),
        (
            *("--excludes", "requirements/train-cpu.exclude", *LINUX),
            *wheels_only(*BUILT_HERE, "crcmod", "oss2", "transformers-stream-generator"),
        ),
        "ms-swift without a GPU. No hashes: torch's wheel differs from machine to machine.",
    ),
    Lock(
        "requirements/verl.txt",
        ("requirements/verl.in",),
        ("--excludes", "requirements/verl.exclude", *LINUX, *wheels_only("antlr4-python3-runtime")),
        "verl without a GPU: what composes and checks its configuration. No hashes, as torch's wheel differs.",
    ),
    Lock(
        "requirements/ray.txt",
        ("pyproject.toml",),
        ("--extra", "dev", "--extra", "ray", "--universal", "--generate-hashes", *wheels_only()),
        "The tool and what develops it, with Ray: for the tests of studies on a cluster.",
    ),
)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when all locks were written, or checked and found good."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing, fail if a lock would change")
    mode.add_argument("--upgrade", action="store_true", help="take the newest versions the sources allow")
    options = parser.parse_args(arguments)
    failed = False
    for lock in LOCKS:
        try:
            failed |= not (check(lock) if options.check else write(lock, upgrade=options.upgrade))
        except SetupError as error:
            say(f"{lock.name}: {error}")
            failed = True
    return int(failed)


def write(lock: Lock, *, upgrade: bool) -> bool:
    """Resolve ``lock`` into its file."""
    path = ROOT / lock.name
    text = resolve(lock, "" if upgrade or not path.exists() else path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    say(f"{lock.name}: {pins(text)} packages")
    return True


def check(lock: Lock) -> bool:
    """Whether resolving ``lock`` again gives the file that is there; if not, the difference is shown."""
    present = (ROOT / lock.name).read_text(encoding="utf-8")
    resolved = resolve(lock, present)
    if resolved == present:
        say(f"{lock.name}: {pins(present)} packages resolve as pinned")
        return True
    lines = difflib.unified_diff(
        present.splitlines(), resolved.splitlines(), lock.name, "resolved now", lineterm="", n=0
    )
    say("\n".join(lines))
    return False


def resolve(lock: Lock, preferred: str) -> str:
    """The text of ``lock``, keeping the versions of ``preferred`` wherever they still resolve.

    Raises:
        SetupError: it does not resolve; uv's explanation is the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        output.write_text(preferred, encoding="utf-8")
        layout = ("--no-header", "--annotation-style", "line", "--quiet", "--python-version", "3.11")
        command = [uv(), "pip", "compile", *lock.sources, *lock.options, *layout, "--output-file", str(output)]
        answer = subprocess.run(command, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise SetupError(f"does not resolve:\n{answer.stderr.strip()}")
        body = output.read_text(encoding="utf-8")
    return f"# {lock.header}\n# Made by `make lock` from {', '.join(lock.sources)}; do not edit.\n{body}"


def plain_environment() -> dict[str, str]:
    """The environment without uv's own settings, so that a lock says nothing about who made it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UV_")}


def uv() -> str:
    """The resolver of the tool's environment."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise SetupError("uv is missing: run it with the tool's environment (make lock)")
    return found


def pins(text: str) -> int:
    """Number of packages that a lock pins."""
    return sum("==" in line and not line.lstrip().startswith("#") for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
