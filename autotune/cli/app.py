"""The command line ``autotune``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autotune.cli import console
from autotune.cli.commands import compare, export, plan, read, report, retry, serve, space, start, sweep, trial, verify
from autotune.cli.doctor import command as doctor
from autotune.cli.failures import exit_code_of
from autotune.cli.options import add_database_option

HELP = """Finds the GRPO training configuration with the most tokens/hour on your machine.

It runs short real trials of your own training framework, and confirms the winner against your
present configuration, with maximum-length completions.

\b
Begin:
  autotune plan --model DIR    what to expect on GPUs, predicted before any trial
  autotune doctor              what this machine lacks, and what mends it
  autotune start --budget 10m  search; the same command again continues
  autotune status              how it stands, from another terminal
  autotune best                the recommendation
  autotune export              its files, and the command that trains with them
  autotune verify              run that command, and compare with the figure
  autotune logs 7 -f           what trial 7 prints
  autotune compare 0 7         two trials, or two studies, beside each other
  autotune retry 7             a trial's configuration again; the later result counts
  autotune report -o r.md      the whole study as one file
  autotune sweep --rows 300    a table of trials over a space, to judge searches on
  autotune serve               the same as a page in your browser, live

\b
Results go to stdout, talk to stderr; every reading command has --json.
Exit codes: 0 done, 1 internal error, 2 refused before anything was done (bad
usage, a home or database that cannot be used), 3 nothing feasible, 4 budget
spent before a result, 5 environment, 6 database failed, 75 ended by a
scheduler's notice (run it again), 130 interrupted.
"""


def version() -> str:
    """Version of the installed distribution."""
    from importlib import metadata

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
    for command in (
        *(start.start, read.status, read.trials, read.best, trial.show, trial.logs, doctor.doctor, serve.serve),
        *(compare.compare, retry.retry, sweep.sweep, report.report_command, export.export, verify.verify, plan.plan),
    ):
        app.command(command.__name__.removesuffix("_command"))(command)
    app.add_typer(space.app, name="space")
    add_database_option(app)
    return app


def main() -> None:
    """Entry point of the ``autotune`` command."""
    console.tolerate_encoding()
    sys.exit(exit_code_of(lambda: build_app()(prog_name="autotune")))
