"""Options as the fields of a dataclass: a command is told one value, and Typer sees one parameter a field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from autotune.errors import UsageError

T = TypeVar("T")


def takes(group: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """A command that is given a ``group``, a dataclass whose fields are annotated as Typer's parameters are."""
    hints = get_type_hints(group, include_extras=True)

    def parameter(name: str, default: Any) -> inspect.Parameter:
        given = inspect.Parameter.empty if default is MISSING else default
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=hints[name])

    parameters = [parameter(field.name, field.default) for field in fields(group)]  # type: ignore[arg-type]

    def made(run: Callable[[T], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(**given: Any) -> None:
            for name, value in given.items():
                if value == "" or (isinstance(value, list) and "" in value):
                    raise UsageError(f"--{name.replace('_', '-')} is empty; leave it out, or give it a value")
            run(group(**given))

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return made
