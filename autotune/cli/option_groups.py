"""Options as the fields of a dataclass: a command receives one value, and Typer sees one parameter for each field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from typer.core import TyperCommand

T = TypeVar("T")

PANELS = {
    "How long (one is needed)": "budget max_trials gpu_hours anyway dry_run",
    "Your run": "config server accelerate model data reward task published framework openr1 python env settings "
    "rows_per_update max_prompt_length max_completion_length",
    "Machine": "gpus rollout_gpus at_once memory_limit ranks allow_busy ray nodes",
    "Search": "space objective sampler seed no_history cold",
    "Study and storage": "name new home database",
    "Screen and page": "no_live quiet as_json no_serve port",
    "Schedulers": "grace signal",
}
"""Panel -> parameters of ``start`` in it."""


class PanelCommand(TyperCommand):
    """Lists the options in panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each panel, and one for the remaining options."""
        records = {p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        for title, names in PANELS.items():
            rows = [records.pop(name) for name in names.split() if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section("Help"):
            formatter.write_dl(list(records.values()))


def takes(group: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Makes a decorator for functions of one ``group``, whose fields become Typer's parameters of a command."""
    hints = get_type_hints(group, include_extras=True)

    def parameter(name: str, default: Any) -> inspect.Parameter:
        given = inspect.Parameter.empty if default is MISSING else default
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hints[name])

    parameters = [parameter(field.name, field.default) for field in fields(group)]  # type: ignore[arg-type]

    def decorate(run: Callable[[T], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(**given: Any) -> None:
            run(group(**given))

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate
