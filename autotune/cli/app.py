"""The command line ``autotune``."""

from __future__ import annotations

import re
import signal
import sys
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from autotune.cli import console
from autotune.cli.commands import compare, export, plan, read, report, retry, serve, space, start, trial, verify, watch
from autotune.cli.doctor import command as doctor
from autotune.cli.failures import exit_code_of
from autotune.cli.option_groups import PanelCommand
from autotune.cli.options import add_database_option
from autotune.cli.stopping import on_interrupt
from autotune.errors import UsageError
from autotune.wording.text import fault_words

HELP = """Finds the GRPO training configuration with the most tokens/hour on your machine.

It runs short trials in your own training framework. It confirms the winner against your present
configuration, with completions of the maximum length. Begin with `autotune start --budget 10m`.

\b
Results go to stdout, messages to stderr. Every command that reads has --json.
Exit codes: 0 done, 1 internal error, 2 refused before any work (bad usage,
unusable home folder or database), 3 no feasible configuration, 4 budget spent
before a result (3 and 4 of watch: act soon, act now), 5 unusable environment,
6 database failed, 75 ended by a scheduler (run it again), 130 interrupted.
"""


GROUPS = {
    "Begin": ("plan", "doctor", "start", "space"),
    "Look": ("status", "best", "trials", "show", "logs", "compare", "note", "report", "serve"),
    "Use": ("export", "verify", "watch", "retry"),
}
"""The commands, as ``--help`` lists them."""


class CommandGroups(TyperGroup):
    """Lists the commands in groups, and refuses unknown words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an empty argument, as from an unset shell variable; treats ``help`` as ``--help``."""
        args = [*args[1:], "--help"] if args[:1] == ["help"] else ["--version"] if args == ["version"] else args
        for before, word in pairwise(["autotune", *args]):
            if before == "start" == args[0] and not word.startswith("-"):
                raise UsageError(f"start takes no word before its options; a time is --budget {word}")
            name, sign, value = word.partition("=") if word.startswith("--") else (before, "=", word)
            if sign and not value and before != "note":  # an empty note removes one
                place = name if name.startswith("-") else f"the word after {name}"
                raise UsageError(f"{place} is empty; leave it out, or give it a value")
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **more: Any) -> Any:
        """Runs a command line; rewords Typer's error messages to include the refused value."""
        try:
            sys.exit(super().main(*args, **{**more, "standalone_mode": False}))
        except TyperException as error:
            if (faults := getattr(error.__cause__, "errors", None)) is not None:
                error.message = fault_words(faults()[0])
            text, context = error.format_message(), getattr(error, "ctx", None)
            if text.startswith("Usage: "):  # no word was given
                console.say(text)
                sys.exit(UsageError.exit_code)
            text = re.sub(r"\.? (?:Did you mean|\(Possible options:) (.*?)[?)]$", r"; did you mean \1?", text)
            help_words = f" (see {context.command_path} --help)" if context else ""
            raise UsageError(f"{text[:1].lower()}{text[1:].rstrip('.')}{help_words}") from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each group."""
        for title, names in GROUPS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, each.get_short_help_str(62)) for name, each in found if each is not None])


def _version(requested: bool) -> None:
    if requested:
        from api.serving import version

        console.line(f"autotune {version()}")
        raise typer.Exit


def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Receives the options before the command; ``HELP`` describes the program."""


def build_app() -> typer.Typer:
    """Builds the whole command line. Commands import heavy modules only when they run."""
    app = typer.Typer(
        name="autotune",
        cls=CommandGroups,
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
        *(
            compare.compare,
            trial.note,
            retry.retry,
            report.report_command,
            export.export,
            verify.verify,
            plan.plan,
            watch.watch,
        ),
    ):
        panels = PanelCommand if command is start.start else None
        app.command(command.__name__.removesuffix("_command"), cls=panels)(command)
    app.add_typer(space.app, name="space")
    add_database_option(app)
    return app


def main() -> None:
    """Runs the ``autotune`` command."""
    console.set_up()
    on_interrupt(signal.default_int_handler)
    code = exit_code_of(lambda: build_app()(prog_name="autotune"))
    on_interrupt(signal.SIG_DFL)  # Python's own exit would answer Ctrl-C with a traceback
    sys.exit(code)
