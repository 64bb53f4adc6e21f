"""The command line ``autotune``."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from typing import Annotated

import typer

from autotune.cli import console, doctor, inspecting, reading
from autotune.cli.failures import exit_code_of

HELP = """Finds the GRPO training configuration with the most tokens/hour on your machine.

It runs short real trials of your own training framework, and confirms the winner against your
present configuration, with maximum-length completions.

\b
Begin:
  autotune doctor              what this machine lacks, and what mends it
  autotune start --budget 10m  search; the same command again continues
  autotune status              how it stands, from another terminal
  autotune best                the recommendation
  autotune logs 7 -f           what trial 7 prints

\b
Results go to stdout, talk to stderr; every reading command has --json.
Exit codes: 0 done, 1 internal error, 2 bad usage, 3 nothing feasible,
4 budget spent before a result, 5 environment, 6 database, 130 interrupted.
"""


def version() -> str:
    """Of the installed distribution."""
    try:
        return metadata.version("grpo-autotune")
    except metadata.PackageNotFoundError:
        return "not installed (run from its source)"


def _version(wanted: bool) -> None:
    if wanted:
        console.line(f"autotune {version()}")
        raise typer.Exit


def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Receives the options before the command; ``HELP`` describes the program."""


def build_app() -> typer.Typer:
    """The whole command line. Commands import what is heavy only when they run."""
    app = typer.Typer(
        name="autotune",
        help=HELP,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": console.WIDTH},
    )
    app.callback(help=HELP)(_root)
    import_module("autotune.cli.start").register(app)
    for command in (reading.status, reading.trials, reading.best, inspecting.show, inspecting.logs, doctor.doctor):
        app.command()(command)
    app.add_typer(import_module("autotune.cli.space").app, name="space")
    return app


def main() -> None:
    """Entry point of the ``autotune`` command."""
    console.tolerate_encoding()
    sys.exit(exit_code_of(lambda: build_app()(prog_name="autotune")))
