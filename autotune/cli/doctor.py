"""``autotune doctor``: what this machine has, what it lacks, and the command that mends it."""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune import hardware
from autotune.cli import console
from autotune.cli.options import HomeOption, JsonOption, settings_for
from autotune.cli.sizes import format_size
from autotune.cli.text import clean
from autotune.errors import AutotuneError, MachineError
from autotune.hardware import Gpu
from autotune.serialise import plain
from autotune.settings import DATABASE_VARIABLE, HOME_VARIABLE, Settings

DISK_NEEDED = 1 << 30
DISK_WANTED = 10 << 30
"""Bytes free in the home: below the first no study starts, below the second downloads may not fit."""

GPU_IDLE = 1 << 30
"""Bytes in use above which a GPU counts as somebody's."""

ANOTHER_HOME = f"export {HOME_VARIABLE}=$HOME/autotune"

REQUIRED = ("torch", "trl", "transformers", "accelerate", "datasets")
PACKAGES = "torch 'trl>=1.16,<1.17' transformers accelerate datasets"
NEW_ENVIRONMENT = f"python3 -m venv train-env && train-env/bin/pip install {PACKAGES}"


class Verdict(StrEnum):
    """What a finding means for a study."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    """No study can run."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    name: str
    verdict: Verdict
    detail: str
    command: str = ""
    """Mends it; empty when there is nothing to mend."""


Probe = Callable[[str], Mapping[str, Any]]
"""Interpreter -> what it has; raises ``AutotuneError`` if it cannot be asked."""


def doctor(
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The training interpreter; this one if it is left out.")
    ] = sys.executable,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """What this machine lacks for a study, and what mends it.

    \b
    Examples:
      autotune doctor
      autotune doctor --python /my/env/bin/python
      autotune doctor --json

    Exit code 5 means that no study can run here yet.
    """
    settings = settings_for(home)
    wiring = import_module("autotune.wiring")
    gpus = hardware.visible_gpus()
    findings = [
        Finding("tuner", Verdict.OK, f"Python {platform.python_version()}, {platform.platform()}"),
        check_home(settings),
        check_disk(settings.home.root),
        check_database(settings, lambda: len(_studies(wiring, settings))),
        check_machine(hardware.usable_cores(), hardware.usable_memory()),
        *check_gpus(gpus),
        check_training(python, wiring.probe),
    ]
    if as_json:
        console.document({"ok": not blocking(findings), "findings": [finding_json(f) for f in findings]})
    else:
        console.show(doctor_screen(findings))
    if blocking(findings):
        raise typer.Exit(MachineError.exit_code)


def _studies(wiring: Any, settings: Settings) -> Sequence[Any]:
    store = wiring.open_store_for(settings)
    try:
        found: Sequence[Any] = store.studies()
        return found
    finally:
        store.close()


def blocking(findings: Sequence[Finding]) -> bool:
    """Whether anything found prevents a study."""
    return any(finding.verdict is Verdict.PROBLEM for finding in findings)


def check_home(settings: Settings) -> Finding:
    """The home exists, or can be made, and can be written."""
    try:
        settings.home.prepare()
    except MachineError as error:
        return Finding("home", Verdict.PROBLEM, str(error), ANOTHER_HOME)
    return Finding("home", Verdict.OK, str(settings.home.root))


def check_disk(root: Path, usage: Callable[[Path], int] | None = None) -> Finding:
    """Free space where the home is; ``usage`` gives free bytes of a folder."""
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = (usage or (lambda path: shutil.disk_usage(path).free))(place)
    except OSError as error:
        return Finding("disk", Verdict.WARNING, f"free space of {place} is not known ({error.strerror or error})")
    move = f"export {HOME_VARIABLE}=/a/larger/disk/autotune"
    text = f"{format_size(free)} free in {place}"
    if free < DISK_NEEDED:
        return Finding("disk", Verdict.PROBLEM, f"{text}; a study needs {format_size(DISK_NEEDED)}", move)
    if free < DISK_WANTED:
        return Finding("disk", Verdict.WARNING, f"{text}; models may not fit", move)
    return Finding("disk", Verdict.OK, text)


def check_database(settings: Settings, studies: Callable[[], int]) -> Finding:
    """The database opens and can be read; ``studies`` counts what is in it."""
    try:
        number = studies()
    except AutotuneError as error:
        return Finding("database", Verdict.PROBLEM, str(error), _database_command(settings))
    words = "1 study" if number == 1 else f"{number} studies"
    own = settings.database == str(settings.home.database)
    place = str(settings.home.database) if own else f"the database of {DATABASE_VARIABLE}"
    return Finding("database", Verdict.OK, f"{words} in {place}")


def _database_command(settings: Settings) -> str:
    if settings.database != str(settings.home.database):
        return f"unset {DATABASE_VARIABLE}"
    if settings.home.database.is_file():
        file = shlex.quote(str(settings.home.database))
        return f"mv {file} {file}.broken"
    return ANOTHER_HOME


def check_machine(cores: int, memory: int | None) -> Finding:
    """What this process may use."""
    text = "memory not known" if memory is None else f"{format_size(memory)} memory"
    return Finding("machine", Verdict.OK, f"{cores} CPU cores, {text}")


def check_gpus(gpus: Sequence[Gpu]) -> list[Finding]:
    """Each GPU, its driver and whether somebody else uses it."""
    if not gpus:
        return [Finding("GPU", Verdict.OK, "none visible; trials run on the CPU")]
    found = []
    for gpu in gpus:
        text = f"{gpu.name}, {format_size(gpu.memory)}, driver {gpu.driver}"
        old = hardware.driver_problem(gpu.driver)
        if old is not None:
            found.append(Finding(f"GPU {gpu.index}", Verdict.WARNING, f"{text}. {old}", "nvidia-smi"))
        elif gpu.memory_used > GPU_IDLE:
            busy = f"{text}; {format_size(gpu.memory_used)} in use, so trials on it are refused"
            found.append(Finding(f"GPU {gpu.index}", Verdict.WARNING, busy, "nvidia-smi"))
        else:
            found.append(Finding(f"GPU {gpu.index}", Verdict.OK, text))
    return found


def check_training(python: str, probe: Probe) -> Finding:
    """The training interpreter starts and has what a trial imports."""
    program = shutil.which(str(Path(python).expanduser()))
    if program is None:
        return Finding("training", Verdict.PROBLEM, f"{python} is no program that can be run", NEW_ENVIRONMENT)
    install = f"{shlex.quote(program)} -m pip install {PACKAGES}"
    try:
        told = probe(program)
    except AutotuneError as error:
        return Finding("training", Verdict.PROBLEM, str(error), install)
    packages = told.get("packages") or {}
    missing = [name for name in REQUIRED if not packages.get(name)]
    if missing:
        return Finding("training", Verdict.PROBLEM, f"{program} lacks {', '.join(missing)}", install)
    versions = ", ".join(f"{name} {packages[name]}" for name in REQUIRED)
    text = f"{program}: Python {told.get('python', 'unknown')}, {versions}"
    if told.get("trl_supported") is False:
        wanted = f"{shlex.quote(program)} -m pip install 'trl>=1.16,<1.17'"
        return Finding("training", Verdict.WARNING, f"{text}; the meter was not checked with this trl", wanted)
    return Finding("training", Verdict.OK, text)


def finding_json(finding: Finding) -> dict[str, Any]:
    """``command`` is null when there is nothing to mend."""
    return {
        "name": plain(finding.name),
        "verdict": finding.verdict.value,
        "detail": plain(finding.detail),
        "command": plain(finding.command) or None,
    }


def doctor_screen(findings: Sequence[Finding]) -> RenderableType:
    """A line for each finding, the command under those that need one, and the verdict."""
    styles = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for finding in findings:
        verdict = Text(finding.verdict.value, styles[finding.verdict])
        table.add_row(Text(finding.name, "bold"), verdict, Text(clean(finding.detail)))
        if finding.command:
            table.add_row("", "", Text(f"$ {clean(finding.command)}", "cyan"))
    end = "No study can run here yet." if blocking(findings) else "A study can run here."
    return Group(table, Text(), Text(end, "bold"))
