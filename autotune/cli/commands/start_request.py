"""Converts the options of ``start`` to a request; runs nothing."""

from __future__ import annotations

import math
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.cli.commands.start_options import ConfigOptions, StartOptions
from autotune.cli.screens.quantities import parse_duration, parse_size
from autotune.cli.stopping import Notice
from autotune.domain import Budget
from autotune.errors import UsageError
from autotune.frameworks import Integration, framework_named
from autotune.machine import hardware
from autotune.specification.published_baseline import published_named
from autotune.specification.request import DEFAULT_SAMPLER, Request
from autotune.specification.user_input import checkout_named, data_named, model_named, rewards_named, task_named
from autotune.wording.text import clean
from search_spaces.batch import served_by
from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.space import parse_value

BUNDLED_VARIABLE = "AUTOTUNE_BUNDLED_MODEL"
LARGEST_CONFIG = 1 << 20
"""Most bytes read of a configuration; the parser refuses far smaller ones."""
LONGEST_NAME = 200
"""Most characters of a study's name."""


def budget_of(options: StartOptions) -> Budget:
    """Returns the limits of the study. Raises ``UsageError`` without a limit, or for an unusable one."""
    hours = options.gpu_hours
    if (options.budget, options.max_trials, hours) == (None, None, None):
        raise UsageError("give the study a limit: --budget 4h, --max-trials 40 or --gpu-hours 8")
    if hours is not None and not (hours > 0 and math.isfinite(hours)):
        raise UsageError(f"--gpu-hours {hours:g}: expected a number of hours above 0, such as 8")
    return Budget(None if options.budget is None else parse_duration(options.budget), options.max_trials, hours)


def request_of(options: StartOptions, folder: Path, at_once: int = 1) -> Request:
    """Returns the request for ``at_once`` parallel trials; relative paths begin in ``folder``. Raises ``UsageError`` if
    an option has an invalid value, or names a file that does not exist."""
    if options.data is not None and options.task is not None:
        raise UsageError("give either --data or --task: both say where the prompts come from")
    if options.name is not None and len(options.name) > LONGEST_NAME:
        raise UsageError(f"--name has {len(options.name):,} characters; expected at most {LONGEST_NAME}")
    if options.name is not None and (options.name[0] in "- " or not options.name.isprintable()):
        raise UsageError(f"--name {clean(options.name)}: expected one line of text, begun with no dash or blank")
    framework = framework_named(framework_asked(options.framework, options.published))
    return paper_request(
        options,
        framework.name,
        model="" if options.model is None else model_named(options.model, folder),
        task="" if options.task is None else task_named(options.task),
        data="" if options.data is None else data_named(options.data, folder),
        rewards=rewards_named(options.reward or (), folder),
        checkout=checkout_asked(options.openr1, folder, framework),
        variables=tuple(options.env or ()),
        published=options.published or "",
        space=options.space,
        sampler=options.sampler or DEFAULT_SAMPLER,
        objective=options.objective,
        seed=options.seed,
        name=options.name,
        memory_limit=_limit(options.memory_limit, at_once),
        gpus=options.gpus,
        ranks=options.ranks,
        nodes=options.nodes,
        folder=str(folder),
        python=interpreter_asked(options.python, framework),
        **options.sizes,
    )


def paper_request(options: ConfigOptions, framework: str, **more: Any) -> Request:
    """Returns a request to check a configuration without a study; ``more`` are further fields. Raises
    ``UsageError`` as ``request_of`` does."""
    named, more = framework_named(framework), {"folder": str(Path.cwd()), **more}
    config, accelerate, server = options.config, options.accelerate, options.server
    served = {} if options.rollout_gpus is None else served_by(options.rollout_gpus)
    checkout = "" if options.openr1 is None else checkout_asked(options.openr1, Path(more["folder"]), named)
    return Request(
        framework=named.name,
        config=None if config is None else config_text(config),
        config_name=str(config or ""),
        accelerate="" if accelerate is None else accelerate_text(accelerate, named, config),
        accelerate_name=str(accelerate or ""),
        server="" if server is None else server_text(server, named, config),
        server_name=str(server or ""),
        baseline={**served, **knobs_of(options.settings or ())},
        **{"checkout": checkout, **more},
    )


def server_text(path: Path, framework: Integration, config: Path | None) -> str:
    """Reads the file of ``--server``. Raises ``UsageError`` if it is missing, or ``framework`` cannot use it."""
    if not framework.takes_server or config is None:
        raise UsageError(
            "--server is the script that starts a rollout server beside a configuration of TRL, Open-R1 or ms-swift; "
            "name that one with --config, or say with --rollout-gpus how many GPUs the server has"
        )
    return config_text(path, "--server") or "\n"  # an empty script is a script without a server


def accelerate_text(path: Path, framework: Integration, config: Path | None) -> str:
    """Reads the file of ``--accelerate``. Raises ``UsageError`` if it is missing, or ``framework`` cannot use it."""
    if not framework.takes_accelerate or config is None:
        raise UsageError(
            "--accelerate is the file that `accelerate launch` is given beside a configuration of TRL or Open-R1; name "
            "the configuration with --config"
        )
    return config_text(path, "--accelerate")


def interpreter_asked(word: str | None, framework: Integration) -> str:
    """Returns the interpreter of ``--python``, else of the active environment, else this one. Raises ``UsageError`` if
    none has the framework."""
    if word is not None:
        return str(Path(os.path.expanduser(word)).absolute())
    modules = [each.name.replace("-", "_") for each in framework.environment.needed]
    active = Path(os.environ.get("VIRTUAL_ENV") or sys.prefix)
    for prefix in (active, Path(sys.prefix)):
        if all(any(prefix.glob(f"lib/python*/site-packages/{module}*")) for module in modules):
            return sys.executable if prefix == Path(sys.prefix) else str(prefix / "bin" / "python")
    raise UsageError(
        f"name the interpreter of your training environment with --python PATH: {active} lacks {framework.title}"
    )


def checkout_asked(word: str | None, folder: Path, framework: Integration) -> str:
    """Returns the folder of ``--openr1``. Raises ``UsageError`` if it is missing, or ``framework`` cannot use it."""
    if not framework.script:
        if word is not None:
            raise UsageError("--openr1 is the checkout that Open-R1's trials run from: --framework openr1")
        return ""
    if word is None:
        raise UsageError("name a checkout of Open-R1 with --openr1 PATH: its trials run the grpo.py in it")
    return checkout_named(word, folder, framework.script)


def framework_asked(word: str | None, baseline: str | None) -> str:
    """Returns the framework of ``--framework``, else of the published baseline, else TRL. Raises ``UsageError``."""
    found = None if baseline is None else published_named(baseline).framework
    return framework_named(word or found or "trl").name


def config_text(path: Path, option: str = "--config", patience_s: float = 10.0) -> str:
    """Reads a configuration. Bytes that are not UTF-8 become surrogates, so that the parser can report their line.
    Raises ``UsageError`` if it cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as stream:
            parts = [b""]
            while sum(map(len, parts)) < LARGEST_CONFIG:
                if not select.select([stream], [], [], patience_s)[0]:
                    raise UsageError(f"{option} {path}: nothing more comes from it for {patience_s:.0f} s; name a file")
                parts.append(stream.read(LARGEST_CONFIG) or b"")
                if not parts[-1]:
                    break
            return b"".join(parts)[:LARGEST_CONFIG].decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror or error}") from None


def knobs_of(words: Sequence[str], option: str = "--set") -> dict[str, KnobValue]:
    """Parses ``KNOB=VALUE`` words of ``option``. Raises ``UsageError`` for another form, unknown knob or bad value."""
    values: dict[str, KnobValue] = {}
    for word in words:
        knob, sign, text = word.partition("=")
        if not sign:
            raise UsageError(f"{option} {clean(word)}: expected KNOB=VALUE, such as {option} micro_batch_size=4")
        try:
            values[knob.strip()] = parse_value(knob.strip(), text.strip())
        except SpaceError as error:
            raise UsageError(f"{option} {clean(word)}: {error}") from None
    return values


def bundled_model() -> str:
    """Returns the folder of the bundled model, which ``make start`` sets as ``BUNDLED_VARIABLE``; empty if not set."""
    folder = os.environ.get(BUNDLED_VARIABLE, "").strip()
    return str(Path(os.path.expanduser(folder)).absolute()) if folder else ""


def _limit(word: str | None, at_once: int) -> int | None:
    """Returns the memory limit of a trial in bytes; ``None`` if parallel trials divide the machine's memory."""
    if word is not None:
        size = parse_size(word)
        if size < 256 << 20:
            raise UsageError(f"--memory-limit {word}: an interpreter with torch alone needs 256 MiB and more")
        return size
    return hardware.contained_memory() if at_once == 1 else None


def notice_of(options: StartOptions) -> Notice:
    """Returns the preemption notice that the options describe. Raises ``UsageError``."""
    return Notice.of(parse_duration(options.grace, "--grace"), options.signal or ())
